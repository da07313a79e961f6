function l(t,e={},...n){let a=document.createElement(t),i=typeof e=="string"?{class:e||null}:e;for(let[g,m]of Object.entries(i))E(a,g,m);return ct(a,...n),a}var _=(t,...e)=>l("div",t,...e),R=(t,...e)=>l("span",t,...e);function ct(t,...e){t.replaceChildren(...dt(e))}function W(t,e,...n){let a=l(t,e,...n);return a.dir="auto",a}function $(t,...e){return l("button",{type:"button",class:t},...e)}function dt(t){return t.filter(Boolean)}function E(t,e,n){n==null||n===!1?t.removeAttribute(e):n===!0?t.setAttribute(e,""):t.getAttribute(e)!==String(n)&&t.setAttribute(e,String(n))}function G(t,e){E(t,"aria-expanded",String(e))}function v(t,e){t.textContent!==e&&(t.textContent=e)}function F(t,e){v(t,e),t.hidden=e===""}var V=t=>t.preventDefault();function x(t,e,n,a,i=!1){e.addEventListener(n,a,{signal:t,capture:i})}function q(t,e,n){x(t,e,"click",n)}function Q(t,e,n){x(t,e,"input",n)}function X(t,e,n){x(t,e,"change",n)}function z(t,e){t.addEventListener("abort",e,{once:!0})}function Z(t){let e=new AbortController;return x(e.signal,t,"abort",()=>e.abort()),e}function tt(t,e,n){let a=setInterval(n,e);z(t,()=>clearInterval(a))}function et(t,e){requestAnimationFrame(()=>{t.aborted||e()})}function B(t){let e=0,n=()=>clearTimeout(e);return z(t,n),{stop:n,start(a,i){n(),t.aborted||(e=setTimeout(i,a))}}}var ot="data-lm-suppress-shortcuts";function U(t,e){t.setAttribute(ot,"true"),x(e,window,"keydown",a=>{let i=a.composedPath()[0];if(!(i instanceof Element)||!t.contains(i))return;let g=!nt(a);for(let m of[t,i])m.toggleAttribute(ot,g)},!0),x(e,t,"keydown",a=>{let i=a.target;nt(a)||(a.stopPropagation(),a.key==="Enter"&&a.shiftKey&&!(i instanceof HTMLTextAreaElement)&&V(a))})}var pt="acvxyz";function nt({key:t,ctrlKey:e,metaKey:n,altKey:a}){return(e||n)&&!a&&/^[a-z]$/i.test(t)&&!pt.includes(t.toLowerCase())}var lt=240,ut=new Map([["ArrowDown",1],["ArrowUp",-1],["Home",Number.NEGATIVE_INFINITY],["End",Number.POSITIVE_INFINITY]]),Y=".nba-runs.nba-runs:not(#nba)",at=(t,e)=>`
@container nbagent (max-width: ${e}px) {
  ${t} {
    & :is(table, tbody) { display: block; }
    & thead { display: block; position: sticky; top: 0; z-index: 1; background: color-mix(in srgb, var(--nba-ink) 5%, var(--nba-page)); border-bottom: 1px solid var(--nba-line); }
    & thead tr { display: flex; flex-wrap: wrap; padding: 0 2px; }
    & thead :is(th, td)[data-of] { position: static; width: auto; border: 0; background: none; }
    & thead [data-of="open"] { display: none; }
    & .nba-sort { padding: 3px 5px; }
    & tbody tr { display: flex; flex-wrap: wrap; column-gap: 10px; align-items: baseline; position: relative; padding: 8px 76px 8px 10px; border-bottom: 1px solid var(--nba-line); }
    & tbody tr:last-child { border-bottom: 0; }
    & tbody td[data-of] { display: block; width: auto; max-width: 100%; padding: 0; border: 0; text-align: start; font-size: 12px; line-height: 18px; }
    & tbody td[data-of]:not([data-of="status"], [data-of="prompt"]) { color: var(--nba-soft); }
    & tbody tr td[data-of]:is([data-of="prompt"], [data-of="status"]) { width: 100%; order: -1; }
    & tbody tr td[data-of][data-of="prompt"] { order: -2; font-size: 13px; line-height: 20px; }
    & tbody tr:has([data-of="prompt"]:empty) td[data-of][data-of="agent"] { width: 100%; order: -2; color: inherit; font-size: 13px; line-height: 20px; }
    & tbody td[data-of]:is(:empty, [hidden]) { display: none; }
    & tbody tr td[data-of][data-of="open"] { position: absolute; top: 8px; right: 10px; }
  }
}`,rt=`
${Y} {
  display: flex; flex-direction: column; gap: 10px; margin-top: 0; padding: 2px 16px 12px; border-top: 0; border-radius: 0 0 10px 10px;
  & .nba-chooser { padding: 0; }
  & .nba-scroll { max-height: 356px; overflow: auto; border: 1px solid var(--nba-line); border-radius: 6px; }
  & table { display: table; width: 100%; margin: 0; border: 0; border-collapse: separate; border-spacing: 0; table-layout: fixed; font: 13px/20px var(--nba-font); }
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
  & [data-of="id"] { width: 10%; }
  & td[data-of="id"] { font: 12px/20px var(--nba-mono); }
  & :is([data-of="agent"], [data-of="asks"]) { width: 12%; }
  & [data-of="status"] { width: 25%; }
  & [data-of="moved"] { width: 82px; }
  & [data-of="deadline"] { width: 78px; }
  & [data-of="cost"] { width: 72px; }
  & [data-of="open"] { width: 72px; text-align: end; }
  & td:is([data-of="moved"], [data-of="deadline"], [data-of="cost"]) { font-variant-numeric: tabular-nums; }
  & td[data-of="cost"] { text-align: end; }
  & th[data-of="cost"] .nba-sort { justify-content: flex-end; }
  & tr[data-status="interrupted"] [data-of="status"] { color: var(--nba-warn-ink); font-weight: 600; }
  & tr:is([data-status="failed"], [data-status="unreadable"]) [data-of="status"] { color: var(--nba-bad); }
  & tr[data-status="completed"] [data-of="status"] { color: var(--nba-good-ink); }
  & tr[data-status="running"] [data-of="status"] { color: var(--nba-link); }
  & .nba-button { min-height: 0; margin: 0; padding: 1px 9px; font: 12px/20px var(--nba-font); }
  & .nba-none { margin: 0; padding: 18px; color: var(--nba-soft); text-align: center; }
  & .nba-foot { display: flex; align-items: center; gap: 12px; min-height: 24px; margin-top: 8px; color: var(--nba-soft); font: 12px/20px var(--nba-font); }
  & .nba-foot [role="alert"] { color: var(--nba-bad); }
}
${at(Y,560)}
${at(`${Y}.nba-many`,800)}
`;function st({send:t,signal:e}){let n=l("tr",{role:"row"}),a=l("tbody",{role:"rowgroup"}),i=l("p",{class:"nba-none",hidden:!0}),g=l("table",{role:"table","aria-label":"Runs"});g.append(l("thead",{role:"rowgroup"},n),a);let m=R({role:"status"}),T=$("nba-button"),N=R({role:"alert",hidden:!0}),S=_("",_("nba-scroll",g,i),_("nba-foot",m,T,N)),w=new Map,M=new Map,k=null,I="",O=o=>{let s=t(o);return F(N,s?"":k?.gone??""),s},D=o=>{r(o),O({type:"open",run:o})&&k?.opened!==o&&A(o)},A=(o,s=lt)=>{let p=[...(S.closest(".widget-vbox, .jp-OutputArea-output")??S).querySelectorAll("section.nbagent")].at(-1),b=p&&p.compareDocumentPosition(S)&Node.DOCUMENT_POSITION_PRECEDING;k?.opened===o&&b&&p.childElementCount?p.scrollIntoView({block:"nearest"}):s>0&&et(e,()=>A(o,s-1))},r=o=>{I=o;for(let[s,{button:f}]of w)f.tabIndex=s===I?0:-1};x(e,a,"keydown",o=>{let s=ut.get(o.key);if(s===void 0||!k)return;o.preventDefault();let f=k.rows.map(([b])=>b),p=Math.min(Math.max(f.indexOf(I)+s,0),f.length-1);r(f[p]??""),w.get(I)?.button.focus()}),q(e,a,o=>{let s=o.target instanceof Element?o.target.closest("tr"):null,f=document.getSelection()?.toString()&&o.detail>0;s?.dataset.run!==void 0&&!f&&D(s.dataset.run)}),q(e,T,()=>O({type:"more"}));let u=({columns:o})=>{for(let[s,f,p,b]of o){let c=M.get(s);if(!c){let h=R(),L=R({"aria-hidden":"true"}),y=$("nba-sort",h,L),C=l("th",{scope:"col",role:"columnheader","data-of":s},y);q(e,y,()=>O({type:"sort",column:s})),c={th:C,button:y,label:h,mark:L},M.set(s,c),n.append(C)}v(c.label,f),v(c.mark,p==="ascending"?"\u25B2":p==="descending"?"\u25BC":""),E(c.th,"aria-sort",p||null),c.th.hidden=!b}n.querySelector('[data-of="open"]')||n.append(l("td",{role:"cell","data-of":"open"}))},d=({columns:o,open:s},f)=>{let p=o.map(([L])=>W("td",{role:"cell","data-of":L})),b=$("nba-button",s),c=l("tr",{role:"row","data-run":f},...p);c.append(l("td",{role:"cell","data-of":"open"},b)),b.tabIndex=-1;let h={row:c,button:b,cells:p};return w.set(f,h),h};return{el:S,update:o=>{k=o,u(o);let s=o.columns.filter(([c,,,h])=>h&&/deadline|cost/.test(c));S.parentElement?.classList.toggle("nba-many",s.length>0);let f=new Set(o.rows.map(([c])=>c)),p=document.activeElement;for(let[c,{row:h}]of w)f.has(c)||(h.remove(),w.delete(c));let b=null;for(let[c,h,L]of o.rows){let{row:y,button:C,cells:it}=w.get(c)??d(o,c);h.forEach((H,K)=>{let j=it[K];j&&(v(j,H),E(j,"title",H.length>12?H:null),j.hidden=!o.columns[K]?.[3])}),E(y,"data-status",L),E(y,"data-open",c===o.opened),G(C,c===o.opened),v(C,c===o.opened?o.close:o.open),E(C,"aria-label",`${C.textContent} ${c}`);let J=b===null?a.firstElementChild:b.nextElementSibling;J!==y&&a.insertBefore(y,J),b=y}p instanceof HTMLElement&&a.contains(p)&&p.focus(),f.has(I)||r(o.rows[0]?.[0]??""),F(i,o.rows.length?"":o.none),v(m,o.said),F(T,o.more)}}}var ft=15e3,bt=150,ht=`
.nba-chooser { display: flex; flex-wrap: wrap; gap: 6px 16px; padding: 2px 0 8px; font: 13px/1.4 var(--jp-ui-font-family, system-ui, sans-serif); color: var(--jp-ui-font-color1, CanvasText); }
.nba-chooser label { display: flex; align-items: center; gap: 6px; white-space: nowrap; color: var(--jp-ui-font-color1, CanvasText); }
.nba-heard { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.nba-chooser label[hidden] { display: none; }
.nba-chooser :is(select, input) { box-sizing: border-box; font: inherit; min-height: 28px; max-width: 16em; padding: 2px 6px; border: 1px solid color-mix(in srgb, currentColor 45%, transparent); border-radius: 4px; background: var(--jp-layout-color1, Canvas); color: inherit; }
.nba-chooser :is(select, input):focus-visible { outline: 2px solid var(--jp-brand-color1, Highlight); outline-offset: 1px; }
`,Nt={render({model:t,el:e,signal:n}){let a=document.createElement("style");a.textContent=ht;let i=document.createElement("div");i.className="nba-chooser",i.setAttribute("role","group");let g=l("div",{class:"nba-heard",role:"status"}),m=()=>v(g,t.get("said")??"");e.append(a,i,g);let T=new Map,N=()=>{let{labels:r,...u}=t.get("choices");i.hidden=!r,r?.text&&!T.has("text")&&I(r.text);for(let[d,P]of Object.entries(u)){let o=T.get(d)??k(d,r[d]),s=JSON.stringify(P);if(o instanceof HTMLSelectElement&&o.dataset.shown!==s){o.dataset.shown=s;let p=t.get("chosen")[d]??"";o.replaceChildren(...P.map(S)),o.value=P.some(([b])=>b===p)?p:""}let f=o.parentElement;f.hidden=P.length<2}},S=([r,u])=>new Option(u,r),w=(r,u,d)=>(i.append(l("label","",u,d)),T.set(r,d),d),M=(r,u)=>{t.set("chosen",{...t.get("chosen"),[r]:u}),t.save_changes()},k=(r,u)=>{let d=w(r,u,l("select"));return X(n,d,()=>M(r,d.value)),d},I=r=>{let u=w("text",r,l("input",{type:"search"})),d=B(n);u.value=t.get("chosen").text??"",Q(n,u,()=>d.start(bt,()=>M("text",u.value)))},O=Z(n),D=r=>{try{return t.send(r),!0}catch{return O.abort(),!1}},A=()=>{document.visibilityState!=="visible"||!i.isConnected||D({type:"shown"})};if(t.on("change:choices",N),t.on("change:said",m),tt(O.signal,ft,A),x(O.signal,document,"visibilitychange",A),z(n,()=>{t.off("change:choices",N),t.off("change:said",m),i.remove()}),N(),t.get("table")){let r=l("div","nbagent nba-runs"),u=st({send:D,signal:n}),d=()=>u.update(t.get("table"));a.textContent+=rt,e.append(r),r.append(i,u.el),t.on("change:table",d),z(n,()=>t.off("change:table",d)),d(),U(r,n)}else U(i,n);A()}};export{Nt as default};
