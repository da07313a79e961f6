function l(t,e={},...n){let o=document.createElement(t),i=typeof e=="string"?{class:e||null}:e;for(let[r,x]of Object.entries(i))O(o,r,x);return ft(o,...n),o}var B=(t,...e)=>l("div",t,...e),q=(t,...e)=>l("span",t,...e);function ft(t,...e){t.replaceChildren(...bt(e))}function X(t,e,...n){let o=l(t,e,...n);return o.dir="auto",o}function H(t,...e){return l("button",{type:"button",class:t},...e)}function bt(t){return t.filter(Boolean)}function O(t,e,n){n==null||n===!1?t.removeAttribute(e):n===!0?t.setAttribute(e,""):t.getAttribute(e)!==String(n)&&t.setAttribute(e,String(n))}function Z(t,e){O(t,"aria-expanded",String(e))}function S(t,e){t.textContent!==e&&(t.textContent=e)}function j(t,e){S(t,e),t.hidden=e===""}var tt=t=>t.preventDefault();function w(t,e,n,o,i=!1){e.addEventListener(n,o,{signal:t,capture:i})}function $(t,e,n){w(t,e,"click",n)}function et(t,e,n){w(t,e,"input",n)}function ot(t,e,n){w(t,e,"change",n)}function E(t,e){t.addEventListener("abort",e,{once:!0})}function nt(t){let e=new AbortController;return w(e.signal,t,"abort",()=>e.abort()),e}function at(t,e,n){let o=setInterval(n,e);E(t,()=>clearInterval(o))}function U(t,e){requestAnimationFrame(()=>{t.aborted||e()})}var kt=Array.from({length:13},(t,e)=>e/20);function Y(t){let e=0,n=null,o=()=>{n=null,clearTimeout(e)},i=()=>{let r=n;o(),r?.()};return E(t,o),{stop:o,now:i,start(r,x){o(),!t.aborted&&(n=x,e=setTimeout(i,r))}}}var rt="data-lm-suppress-shortcuts";function K(t,e){t.setAttribute(rt,"true"),w(e,window,"keydown",o=>{let i=o.composedPath()[0];if(!(i instanceof Element)||!t.contains(i))return;let r=!st(o);for(let x of[t,i])x.toggleAttribute(rt,r)},!0),w(e,t,"keydown",o=>{let i=o.target;st(o)||(o.stopPropagation(),o.key==="Enter"&&o.shiftKey&&!(i instanceof HTMLTextAreaElement)&&tt(o))})}var ht="acvxyz";function st({key:t,ctrlKey:e,metaKey:n,altKey:o}){return(e||n)&&!o&&/^[a-z]$/i.test(t)&&!ht.includes(t.toLowerCase())}var xt=new Set(["restarting","autorestarting","terminating","dead"]);function it(t,e,n){let o=()=>n(),i=(x,m)=>{xt.has(m)&&n()},r=t.widget_manager?.kernel;t.on("comm_live_update",o),r?.statusChanged?.connect(i),r?.disposed?.connect(o),E(e,()=>{t.off("comm_live_update",o),r?.statusChanged?.disconnect(i),r?.disposed?.disconnect(o)})}function W({model:t,signal:e}){let n=t.get("channel");if(!n)return t;let o=new BroadcastChannel(n);E(e,()=>o.close());let i=r=>o.postMessage(JSON.stringify(r));return new Proxy(t,{get(r,x){if(x==="send")return i;let m=Reflect.get(r,x);return typeof m=="function"?m.bind(r):m}})}var mt=240,gt=new Map([["ArrowDown",1],["ArrowUp",-1],["Home",Number.NEGATIVE_INFINITY],["End",Number.POSITIVE_INFINITY]]),G=".nba-runs.nba-runs:not(#nba)",dt=(t,e)=>`
@container nbagent (max-width: ${e}px) {
  ${t} {
    & :is(table, tbody) { display: block; }
    & thead { display: block; position: sticky; top: 0; z-index: 1; background: color-mix(in srgb, var(--nba-ink) 5%, var(--nba-page)); border-bottom: 1px solid var(--nba-line); }
    & thead tr { display: flex; padding: 0 4px; overflow-x: auto; scrollbar-width: none; }
    & thead tr :is(th, td)[data-of] { flex: none; min-width: 0; max-width: none; }
    & thead :is(th, td)[data-of] { position: static; width: auto; border: 0; background: none; }
    & thead [data-of="open"] { display: none; }
    & .nba-sort { padding: 3px 6px; }
    & tbody tr { display: flex; flex-wrap: wrap; column-gap: 10px; align-items: baseline; position: relative; padding: 8px 76px 8px 10px; border-bottom: 1px solid var(--nba-line); }
    & tbody tr:last-child { border-bottom: 0; }
    & tbody td[data-of] { display: block; width: auto; max-width: 100%; padding: 0; border: 0; text-align: start; font-size: 12px; line-height: 18px; }
    & tbody td[data-of]:not([data-of="status"], [data-of="prompt"]) { color: var(--nba-soft); }
    & tbody tr td[data-of]:is([data-of="prompt"], [data-of="status"]) { width: 100%; order: -1; }
    & tbody tr td[data-of][data-of="prompt"] { order: -2; font-size: 13px; line-height: 20px; }
    & tbody tr:has([data-of="prompt"]:empty) td[data-of][data-of="agent"] { width: 100%; order: -2; color: inherit; font-size: 13px; line-height: 20px; }
    & tbody td[data-of]:is(:empty, [hidden]) { display: none; }
    & tbody td[data-of="id"] { max-width: 10ch; }
    & tbody tr td[data-of][data-of="open"] { position: absolute; top: 8px; right: 10px; }
  }
}`,ct=`
${G} {
  display: flex; flex-direction: column; gap: 10px; margin-top: 0; padding: 2px 16px 12px; border-top: 0; border-radius: 0 0 10px 10px;
  & .nba-chooser { padding: 0; }
  & .nba-scroll { max-height: 356px; overflow: auto; border: 1px solid var(--nba-line); border-radius: 6px; }
  & table { display: table; width: 100%; margin: 0; border: 0; border-collapse: separate; border-spacing: 0; table-layout: auto; font: 13px/20px var(--nba-font); }
  & .nba-scroll:has(> table[hidden]) { border: 0; }
  & :is(th, td) { padding: 5px 8px; border: 0; border-bottom: 1px solid var(--nba-line); text-align: start; vertical-align: middle; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; background: none; color: inherit; max-width: none; min-width: 0; }
  & tbody tr:last-child td { border-bottom: 0; }
  & thead :is(th, td) { position: sticky; top: 0; z-index: 1; padding: 0; background: color-mix(in srgb, var(--nba-ink) 5%, var(--nba-page)); color: var(--nba-soft); font: 12px/20px var(--nba-font); }
  & th[aria-sort] { color: var(--nba-ink); font-weight: 600; }
  & tbody tr { background: none; cursor: pointer; }
  & tbody tr:hover { background: var(--nba-fill); }
  & tbody tr[data-open] { background: color-mix(in srgb, var(--nba-accent) 12%, var(--nba-page)); }
  & .nba-sort { display: flex; gap: 4px; width: 100%; min-height: 0; margin: 0; padding: 5px 8px; border: 0; background: none; color: inherit; font: inherit; text-align: start; cursor: pointer; }
  & .nba-sort:hover { text-decoration: underline; }
  & :is(.nba-sort, .nba-button, input, select):focus-visible { outline: 2px solid var(--nba-accent); outline-offset: -2px; }
  & td[data-of="id"] { max-width: max(74px, 10cqi); font: 12px/20px var(--nba-mono); }
  & td:is([data-of="agent"], [data-of="asks"]) { max-width: 15cqi; }
  & td[data-of="status"] { max-width: 26cqi; }
  & [data-of="prompt"] { width: 99%; max-width: 0; }
  & th[data-of="prompt"] { min-width: 90px; }
  & td[data-of="open"] { text-align: end; }
  & [hidden] { display: none; }
  & td:is([data-of="updated"], [data-of="deadline"], [data-of="cost"]) { font-variant-numeric: tabular-nums; }
  & td[data-of="cost"] { text-align: end; }
  & th[data-of="cost"] .nba-sort { justify-content: flex-end; }
  & tr[data-status="interrupted"] [data-of="status"] { color: var(--nba-warn-ink); font-weight: 600; }
  & tr:is([data-status="failed"], [data-status="unreadable"]) [data-of="status"] { color: var(--nba-bad); }
  & tr[data-status="completed"] [data-of="status"] { color: var(--nba-good-ink); }
  & tr[data-status="running"] [data-of="status"] { color: var(--nba-link); }
  & .nba-button { min-height: 0; margin: 0; padding: 1px 9px; font: 12px/20px var(--nba-font); }
  & button:disabled { color: var(--nba-soft); border-style: dashed; cursor: default; text-decoration: none; }
  & table[hidden] + .nba-none { padding: 0; text-align: start; }
  & .nba-none { margin: 0; padding: 18px; color: var(--nba-soft); text-align: center; }
  & .nba-foot { display: flex; align-items: center; gap: 12px; min-height: 24px; margin-top: 8px; color: var(--nba-soft); font: 12px/20px var(--nba-font); }
  & .nba-foot [role="alert"] { color: var(--nba-bad); }
}
${dt(G,560)}
${dt(`${G}.nba-many`,680)}
`;function lt({send:t,signal:e}){let n=l("tr",{role:"row"}),o=l("tbody",{role:"rowgroup"}),i=l("p",{class:"nba-none",hidden:!0}),r=l("table",{role:"table","aria-label":"Runs"});r.append(l("thead",{role:"rowgroup"},n),o);let x=q({role:"status"}),m=H("nba-button"),A=q({role:"alert",hidden:!0}),L=B("nba-foot",x,m,A),k=B("",B("nba-scroll",r,i),L),y=new Map,M=new Map,T=null,I="",C=a=>{let s=t(a);return s||_(),s},_=()=>{j(A,T?.gone??"");for(let a of k.querySelectorAll("button"))a.disabled=!0},P=a=>{F(a),C({type:"open",run:a})&&T?.opened!==a&&D(a)},D=(a,s=mt)=>{let b=[...(k.closest(".widget-vbox, .jp-OutputArea-output")??k).querySelectorAll("section.nbagent")].at(-1),h=b&&b.compareDocumentPosition(k)&Node.DOCUMENT_POSITION_PRECEDING;T?.opened===a&&h&&b.childElementCount?b.scrollIntoView({block:"nearest"}):s>0&&U(e,()=>D(a,s-1))},F=a=>{I=a;for(let[s,{button:f}]of y)f.tabIndex=s===I?0:-1};w(e,o,"keydown",a=>{let s=gt.get(a.key);if(s===void 0||!T)return;a.preventDefault();let f=T.rows.map(([h])=>h),b=Math.min(Math.max(f.indexOf(I)+s,0),f.length-1);F(f[b]??""),y.get(I)?.button.focus()}),$(e,o,a=>{let s=a.target instanceof Element?a.target.closest("tr"):null,f=document.getSelection()?.toString()&&a.detail>0;s?.dataset.run!==void 0&&!f&&P(s.dataset.run)}),$(e,m,()=>C({type:"more"}));let c=({columns:a})=>{for(let[s,f,b,h]of a){let d=M.get(s);if(!d){let g=q(),R=q({"aria-hidden":"true"}),v=H("nba-sort",g,R),N=l("th",{scope:"col",role:"columnheader","data-of":s},v);$(e,v,()=>C({type:"sort",column:s})),d={th:N,button:v,label:g,mark:R},M.set(s,d),n.append(N)}S(d.label,f),S(d.mark,b==="ascending"?"\u25B2":b==="descending"?"\u25BC":""),O(d.th,"aria-sort",b||null),d.th.hidden=!h}n.querySelector('[data-of="open"]')||n.append(l("td",{role:"cell","data-of":"open"}))},p=({columns:a,open:s},f)=>{let b=a.map(([R])=>X("td",{role:"cell","data-of":R})),h=H("nba-button",s),d=l("tr",{role:"row","data-run":f},...b);d.append(l("td",{role:"cell","data-of":"open"},h)),h.tabIndex=-1;let g={row:d,button:h,cells:b};return y.set(f,g),g};return{el:k,update:a=>{T=a,c(a);let s=a.columns.filter(([d,,,g])=>g&&/deadline|cost/.test(d));k.parentElement?.classList.toggle("nba-many",s.length>0);let f=new Set(a.rows.map(([d])=>d)),b=document.activeElement;for(let[d,{row:g}]of y)f.has(d)||(g.remove(),y.delete(d));let h=null;for(let[d,g,R]of a.rows){let{row:v,button:N,cells:ut}=y.get(d)??p(a,d);g.forEach((J,Q)=>{let z=ut[Q];z&&(S(z,J),O(z,"title",J.length>12?J:null),z.hidden=!a.columns[Q]?.[3])}),O(v,"data-status",R),O(v,"data-open",d===a.opened),Z(N,d===a.opened),S(N,d===a.opened?a.close:a.open),O(N,"aria-label",`${N.textContent} ${d}`);let V=h===null?o.firstElementChild:h.nextElementSibling;V!==v&&o.insertBefore(v,V),h=v}b instanceof HTMLElement&&o.contains(b)&&b.focus(),f.has(I)||F(a.rows[0]?.[0]??""),j(i,a.rows.length?"":a.none),r.hidden=!a.columns.length,S(x,a.said),L.hidden=!a.said,j(m,a.more)},disable:_}}var wt=15e3,yt=150,vt=240,St=`
.nba-chooser[hidden] { display: none; }
.nbagent > .nba-chooser { padding: 0 16px 12px; }
.nba-chooser { display: flex; flex-wrap: wrap; gap: 6px 16px; padding: 2px 0 8px; font: 13px/1.4 var(--jp-ui-font-family, system-ui, sans-serif); color: var(--jp-ui-font-color1, CanvasText); }
.nba-chooser label { display: flex; align-items: center; gap: 6px; white-space: nowrap; color: var(--jp-ui-font-color1, CanvasText); }
.nba-heard { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.nba-chooser label[hidden] { display: none; }
.nba-chooser :is(select, input) { box-sizing: border-box; font: inherit; min-height: 28px; max-width: 16em; padding: 2px 6px; border: 1px solid color-mix(in srgb, currentColor 45%, transparent); border-radius: 4px; background: var(--jp-layout-color1, Canvas); color: inherit; }
.nba-chooser :is(select, input):focus-visible { outline: 2px solid var(--jp-brand-color1, Highlight); outline-offset: 1px; }
`;function pt(t,e,n,o=vt){let i=e.closest(".widget-vbox")?.querySelector("section.nbagent > .nba-header");i?i.after(t):o>0&&U(n,()=>pt(t,e,n,o-1))}var $t={render({model:t,el:e,signal:n}){let o=W({model:t,signal:n}),i=document.createElement("style");i.textContent=St;let r=document.createElement("div");r.className="nba-chooser",r.setAttribute("role","group");let x=l("div",{class:"nba-heard",role:"status"}),m=()=>S(x,o.get("said")??"");e.append(i,r,x);let A=new Map,L=()=>{let{labels:c,...p}=o.get("choices");r.hidden=!c,c?.text&&!A.has("text")&&I(c.text);for(let[u,a]of Object.entries(p)){let s=A.get(u)??T(u,c[u]),f=JSON.stringify(a);if(s instanceof HTMLSelectElement&&s.dataset.shown!==f){s.dataset.shown=f;let h=o.get("chosen")[u]??"";s.replaceChildren(...a.map(k)),s.value=a.some(([d])=>d===h)?h:""}let b=s.parentElement;b.hidden=a.length<2}},k=([c,p])=>new Option(p,c),y=(c,p,u)=>(r.append(l("label","",p,u)),A.set(c,u),u),M=(c,p)=>{o.set("chosen",{...o.get("chosen"),[c]:p}),o.save_changes()},T=(c,p)=>{let u=y(c,p,l("select"));return ot(n,u,()=>M(c,u.value)),u},I=c=>{let p=y("text",c,l("input",{type:"search"})),u=Y(n);p.value=o.get("chosen").text??"",et(n,p,()=>u.start(yt,()=>M("text",p.value)))},C=nt(n),_=c=>{try{return o.send(c),!0}catch{return C.abort(),!1}},P=()=>{document.visibilityState!=="visible"||!r.isConnected||_({type:"shown"})},D=()=>{};if(it(o,n,()=>{C.abort();for(let c of A.values())c.disabled=!0;D()}),o.on("change:choices",L),o.on("change:said",m),at(C.signal,wt,P),w(C.signal,document,"visibilitychange",P),E(n,()=>{o.off("change:choices",L),o.off("change:said",m),r.remove()}),L(),o.get("table")){let c=l("div","nbagent nba-runs"),p=lt({send:_,signal:n}),u=()=>p.update(o.get("table"));D=p.disable,i.textContent+=ct,e.append(c),c.append(r,p.el),o.on("change:table",u),E(n,()=>o.off("change:table",u)),u(),K(c,n)}else K(r,n),pt(r,e,n);P()}};export{$t as default};
