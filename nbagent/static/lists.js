function p(t,e={},...n){let a=document.createElement(t),r=typeof e=="string"?{class:e||null}:e;for(let[u,x]of Object.entries(r))O(a,u,x);return ut(a,...n),a}var F=(t,...e)=>p("div",t,...e),R=(t,...e)=>p("span",t,...e);function ut(t,...e){t.replaceChildren(...ft(e))}function Q(t,e,...n){let a=p(t,e,...n);return a.dir="auto",a}function j(t,...e){return p("button",{type:"button",class:t},...e)}function ft(t){return t.filter(Boolean)}function O(t,e,n){n==null||n===!1?t.removeAttribute(e):n===!0?t.setAttribute(e,""):t.getAttribute(e)!==String(n)&&t.setAttribute(e,String(n))}function X(t,e){O(t,"aria-expanded",String(e))}function S(t,e){t.textContent!==e&&(t.textContent=e)}function H(t,e){S(t,e),t.hidden=e===""}var Z=t=>t.preventDefault();function m(t,e,n,a,r=!1){e.addEventListener(n,a,{signal:t,capture:r})}function $(t,e,n){m(t,e,"click",n)}function tt(t,e,n){m(t,e,"input",n)}function et(t,e,n){m(t,e,"change",n)}function C(t,e){t.addEventListener("abort",e,{once:!0})}function ot(t){let e=new AbortController;return m(e.signal,t,"abort",()=>e.abort()),e}function nt(t,e,n){let a=setInterval(n,e);C(t,()=>clearInterval(a))}function U(t,e){requestAnimationFrame(()=>{t.aborted||e()})}var Et=Array.from({length:13},(t,e)=>e/20);function J(t){let e=0,n=null,a=()=>{n=null,clearTimeout(e)},r=()=>{let u=n;a(),u?.()};return C(t,a),{stop:a,now:r,start(u,x){a(),!t.aborted&&(n=x,e=setTimeout(r,u))}}}var at="data-lm-suppress-shortcuts";function K(t,e){t.setAttribute(at,"true"),m(e,window,"keydown",a=>{let r=a.composedPath()[0];if(!(r instanceof Element)||!t.contains(r))return;let u=!rt(a);for(let x of[t,r])x.toggleAttribute(at,u)},!0),m(e,t,"keydown",a=>{let r=a.target;rt(a)||(a.stopPropagation(),a.key==="Enter"&&a.shiftKey&&!(r instanceof HTMLTextAreaElement)&&Z(a))})}var bt="acvxyz";function rt({key:t,ctrlKey:e,metaKey:n,altKey:a}){return(e||n)&&!a&&/^[a-z]$/i.test(t)&&!bt.includes(t.toLowerCase())}var ht=new Set(["restarting","autorestarting","terminating","dead"]);function st(t,e,n){let a=()=>n(),r=(x,w)=>{ht.has(w)&&n()},u=t.widget_manager?.kernel;t.on("comm_live_update",a),u?.statusChanged?.connect(r),u?.disposed?.connect(a),C(e,()=>{t.off("comm_live_update",a),u?.statusChanged?.disconnect(r),u?.disposed?.disconnect(a)})}var xt=240,gt=new Map([["ArrowDown",1],["ArrowUp",-1],["Home",Number.NEGATIVE_INFINITY],["End",Number.POSITIVE_INFINITY]]),W=".nba-runs.nba-runs:not(#nba)",it=(t,e)=>`
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
${W} {
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
  & td:is([data-of="moved"], [data-of="deadline"], [data-of="cost"]) { font-variant-numeric: tabular-nums; }
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
${it(W,560)}
${it(`${W}.nba-many`,680)}
`;function dt({send:t,signal:e}){let n=p("tr",{role:"row"}),a=p("tbody",{role:"rowgroup"}),r=p("p",{class:"nba-none",hidden:!0}),u=p("table",{role:"table","aria-label":"Runs"});u.append(p("thead",{role:"rowgroup"},n),a);let x=R({role:"status"}),w=j("nba-button"),A=R({role:"alert",hidden:!0}),P=F("nba-foot",x,w,A),v=F("",F("nba-scroll",u,r),P),k=new Map,q=new Map,T=null,y="",N=o=>{let i=t(o);return i||L(),i},L=()=>{H(A,T?.gone??"");for(let o of v.querySelectorAll("button"))o.disabled=!0},z=o=>{s(o),N({type:"open",run:o})&&T?.opened!==o&&B(o)},B=(o,i=xt)=>{let l=[...(v.closest(".widget-vbox, .jp-OutputArea-output")??v).querySelectorAll("section.nbagent")].at(-1),h=l&&l.compareDocumentPosition(v)&Node.DOCUMENT_POSITION_PRECEDING;T?.opened===o&&h&&l.childElementCount?l.scrollIntoView({block:"nearest"}):i>0&&U(e,()=>B(o,i-1))},s=o=>{y=o;for(let[i,{button:b}]of k)b.tabIndex=i===y?0:-1};m(e,a,"keydown",o=>{let i=gt.get(o.key);if(i===void 0||!T)return;o.preventDefault();let b=T.rows.map(([h])=>h),l=Math.min(Math.max(b.indexOf(y)+i,0),b.length-1);s(b[l]??""),k.get(y)?.button.focus()}),$(e,a,o=>{let i=o.target instanceof Element?o.target.closest("tr"):null,b=document.getSelection()?.toString()&&o.detail>0;i?.dataset.run!==void 0&&!b&&z(i.dataset.run)}),$(e,w,()=>N({type:"more"}));let f=({columns:o})=>{for(let[i,b,l,h]of o){let c=q.get(i);if(!c){let g=R(),_=R({"aria-hidden":"true"}),E=j("nba-sort",g,_),I=p("th",{scope:"col",role:"columnheader","data-of":i},E);$(e,E,()=>N({type:"sort",column:i})),c={th:I,button:E,label:g,mark:_},q.set(i,c),n.append(I)}S(c.label,b),S(c.mark,l==="ascending"?"\u25B2":l==="descending"?"\u25BC":""),O(c.th,"aria-sort",l||null),c.th.hidden=!h}n.querySelector('[data-of="open"]')||n.append(p("td",{role:"cell","data-of":"open"}))},d=({columns:o,open:i},b)=>{let l=o.map(([_])=>Q("td",{role:"cell","data-of":_})),h=j("nba-button",i),c=p("tr",{role:"row","data-run":b},...l);c.append(p("td",{role:"cell","data-of":"open"},h)),h.tabIndex=-1;let g={row:c,button:h,cells:l};return k.set(b,g),g};return{el:v,update:o=>{T=o,f(o);let i=o.columns.filter(([c,,,g])=>g&&/deadline|cost/.test(c));v.parentElement?.classList.toggle("nba-many",i.length>0);let b=new Set(o.rows.map(([c])=>c)),l=document.activeElement;for(let[c,{row:g}]of k)b.has(c)||(g.remove(),k.delete(c));let h=null;for(let[c,g,_]of o.rows){let{row:E,button:I,cells:pt}=k.get(c)??d(o,c);g.forEach((Y,V)=>{let D=pt[V];D&&(S(D,Y),O(D,"title",Y.length>12?Y:null),D.hidden=!o.columns[V]?.[3])}),O(E,"data-status",_),O(E,"data-open",c===o.opened),X(I,c===o.opened),S(I,c===o.opened?o.close:o.open),O(I,"aria-label",`${I.textContent} ${c}`);let G=h===null?a.firstElementChild:h.nextElementSibling;G!==E&&a.insertBefore(E,G),h=E}l instanceof HTMLElement&&a.contains(l)&&l.focus(),b.has(y)||s(o.rows[0]?.[0]??""),H(r,o.rows.length?"":o.none),u.hidden=!o.columns.length,S(x,o.said),P.hidden=!o.said,H(w,o.more)},lose:L}}var mt=15e3,wt=150,yt=240,vt=`
.nba-chooser[hidden] { display: none; }
.nbagent > .nba-chooser { padding: 0 16px 12px; }
.nba-chooser { display: flex; flex-wrap: wrap; gap: 6px 16px; padding: 2px 0 8px; font: 13px/1.4 var(--jp-ui-font-family, system-ui, sans-serif); color: var(--jp-ui-font-color1, CanvasText); }
.nba-chooser label { display: flex; align-items: center; gap: 6px; white-space: nowrap; color: var(--jp-ui-font-color1, CanvasText); }
.nba-heard { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.nba-chooser label[hidden] { display: none; }
.nba-chooser :is(select, input) { box-sizing: border-box; font: inherit; min-height: 28px; max-width: 16em; padding: 2px 6px; border: 1px solid color-mix(in srgb, currentColor 45%, transparent); border-radius: 4px; background: var(--jp-layout-color1, Canvas); color: inherit; }
.nba-chooser :is(select, input):focus-visible { outline: 2px solid var(--jp-brand-color1, Highlight); outline-offset: 1px; }
`;function lt(t,e,n,a=yt){let r=e.closest(".widget-vbox")?.querySelector("section.nbagent > .nba-header");r?r.after(t):a>0&&U(n,()=>lt(t,e,n,a-1))}var Ft={render({model:t,el:e,signal:n}){let a=document.createElement("style");a.textContent=vt;let r=document.createElement("div");r.className="nba-chooser",r.setAttribute("role","group");let u=p("div",{class:"nba-heard",role:"status"}),x=()=>S(u,t.get("said")??"");e.append(a,r,u);let w=new Map,A=()=>{let{labels:s,...f}=t.get("choices");r.hidden=!s,s?.text&&!w.has("text")&&T(s.text);for(let[d,M]of Object.entries(f)){let o=w.get(d)??q(d,s[d]),i=JSON.stringify(M);if(o instanceof HTMLSelectElement&&o.dataset.shown!==i){o.dataset.shown=i;let l=t.get("chosen")[d]??"";o.replaceChildren(...M.map(P)),o.value=M.some(([h])=>h===l)?l:""}let b=o.parentElement;b.hidden=M.length<2}},P=([s,f])=>new Option(f,s),v=(s,f,d)=>(r.append(p("label","",f,d)),w.set(s,d),d),k=(s,f)=>{t.set("chosen",{...t.get("chosen"),[s]:f}),t.save_changes()},q=(s,f)=>{let d=v(s,f,p("select"));return et(n,d,()=>k(s,d.value)),d},T=s=>{let f=v("text",s,p("input",{type:"search"})),d=J(n);f.value=t.get("chosen").text??"",tt(n,f,()=>d.start(wt,()=>k("text",f.value)))},y=ot(n),N=s=>{try{return t.send(s),!0}catch{return y.abort(),!1}},L=()=>{document.visibilityState!=="visible"||!r.isConnected||N({type:"shown"})},z=()=>{};if(st(t,n,()=>{y.abort();for(let s of w.values())s.disabled=!0;z()}),t.on("change:choices",A),t.on("change:said",x),nt(y.signal,mt,L),m(y.signal,document,"visibilitychange",L),C(n,()=>{t.off("change:choices",A),t.off("change:said",x),r.remove()}),A(),t.get("table")){let s=p("div","nbagent nba-runs"),f=dt({send:N,signal:n}),d=()=>f.update(t.get("table"));z=f.lose,a.textContent+=ct,e.append(s),s.append(r,f.el),t.on("change:table",d),C(n,()=>t.off("change:table",d)),d(),K(s,n)}else K(r,n),lt(r,e,n);L()}};export{Ft as default};
