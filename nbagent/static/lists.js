function p(e,t={},...n){let o=document.createElement(e),r=typeof t=="string"?{class:t||null}:t;for(let[s,l]of Object.entries(r))_(o,s,l);return ht(o,...n),o}var z=(e,...t)=>p("div",e,...t),D=(e,...t)=>p("span",e,...t);function ht(e,...t){e.replaceChildren(...mt(t))}function X(e,t,...n){let o=p(e,t,...n);return o.dir="auto",o}function B(e,...t){return p("button",{type:"button",class:e},...t)}function mt(e){return e.filter(Boolean)}function _(e,t,n){n==null||n===!1?e.removeAttribute(t):n===!0?e.setAttribute(t,""):e.getAttribute(t)!==String(n)&&e.setAttribute(t,String(n))}function Z(e,t){_(e,"aria-expanded",String(t))}function A(e,t){e.textContent!==t&&(e.textContent=t)}function K(e,t){A(e,t),e.hidden=t===""}var tt=e=>e.preventDefault();function y(e,t,n,o,r=!1){t.addEventListener(n,o,{signal:e,capture:r})}function $(e,t,n){y(e,t,"click",n)}function et(e,t,n){y(e,t,"input",n)}function ot(e,t,n){y(e,t,"change",n)}function I(e,t){e.addEventListener("abort",t,{once:!0})}function nt(e){let t=new AbortController;return y(t.signal,e,"abort",()=>t.abort()),t}function at(e,t,n){let o=setInterval(n,t);I(e,()=>clearInterval(o))}function U(e,t){requestAnimationFrame(()=>{e.aborted||t()})}var Nt=Array.from({length:13},(e,t)=>t/20);function F(e){let t=0,n=null,o=()=>{n=null,clearTimeout(t)},r=()=>{let s=n;o(),s?.()};return I(e,o),{stop:o,now:r,start(s,l){o(),!e.aborted&&(n=l,t=setTimeout(r,s))}}}var rt="data-lm-suppress-shortcuts";function J(e,t){e.setAttribute(rt,"true"),y(t,window,"keydown",o=>{let r=o.composedPath()[0];if(!(r instanceof Element)||!e.contains(r))return;let s=!st(o);for(let l of[e,r])l.toggleAttribute(rt,s)},!0),y(t,e,"keydown",o=>{let r=o.target;st(o)||(o.stopPropagation(),o.key==="Enter"&&o.shiftKey&&!(r instanceof HTMLTextAreaElement)&&tt(o))})}var xt="acvxyz";function st({key:e,ctrlKey:t,metaKey:n,altKey:o}){return(t||n)&&!o&&/^[a-z]$/i.test(e)&&!xt.includes(e.toLowerCase())}var gt=new Set(["restarting","autorestarting","terminating","dead"]),[it,wt]=[2e3,7e3],yt=6e4,vt=500,ct=new WeakMap;function dt(e,t,n,o=()=>{}){let r=e.widget_manager?.kernel,s=F(t),l=!1,m=!1,k=()=>{s.stop(),l=!1,m&&o(!1),m=!1},E=async()=>{let g=await St(e);t.aborted||g===null||(k(),g||n())},v=g=>{E(),s.start(g,()=>{m||o(!0),m=!0,v(Math.min(2*g,yt))})},w=()=>n(),O=(g,T)=>{gt.has(T)?n():T==="starting"&&E()};return e.on("comm_live_update",w),r?.statusChanged?.connect(O),r?.disposed?.connect(w),y(t,document,"visibilitychange",()=>document.hidden||E()),I(t,()=>{e.off("comm_live_update",w),r?.statusChanged?.disconnect(O),r?.disposed?.disconnect(w)}),{heard:k,pressed(){l||(l=!0,s.start(it,()=>v(wt-it)))}}}async function St(e){let t=e.widget_manager?.kernel,n=e.get("layout")?.model_id,o=e.get("channel");if(!t?.requestCommInfo||o||typeof n!="string")return null;let r=ct.get(t);if(!r||performance.now()-r.at>vt){let l=t.requestCommInfo({target_name:"jupyter.widget"}).then(({content:m})=>m.comms??null,()=>null);r={at:performance.now(),comms:l},ct.set(t,r)}let s=await r.comms;return s&&n in s}function Y({model:e,signal:t}){let n=e.get("channel");if(!n)return e;let o=new BroadcastChannel(n);I(t,()=>o.close());let r=s=>o.postMessage(JSON.stringify(s));return new Proxy(e,{get(s,l){if(l==="send")return r;let m=Reflect.get(s,l);return typeof m=="function"?m.bind(s):m}})}var kt=240,Et=new Map([["ArrowDown",1],["ArrowUp",-1],["Home",Number.NEGATIVE_INFINITY],["End",Number.POSITIVE_INFINITY]]),G=".nba-runs.nba-runs:not(#nba)",lt=(e,t)=>`
@container nbagent (max-width: ${t}px) {
  ${e} {
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
}`,pt=`
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
${lt(G,560)}
${lt(`${G}.nba-many`,680)}
`;function ut({send:e,signal:t}){let n=p("tr",{role:"row"}),o=p("tbody",{role:"rowgroup"}),r=p("p",{class:"nba-none",hidden:!0}),s=p("table",{role:"table","aria-label":"Runs"});s.append(p("thead",{role:"rowgroup"},n),o);let l=D({role:"status"}),m=B("nba-button"),k=D({role:"alert",hidden:!0}),E=z("nba-foot",l,m,k),v=z("",z("nba-scroll",s,r),E),w=new Map,O=new Map,g=null,T="",N=a=>{let i=e(a);return i||M(),i},M=()=>{K(k,g?.gone??"");for(let a of v.querySelectorAll("button"))a.disabled=!0},P=a=>{H(a),N({type:"open",run:a})&&g?.opened!==a&&q(a)},q=(a,i=kt)=>{let h=[...(v.closest(".widget-vbox, .jp-OutputArea-output")??v).querySelectorAll("section.nbagent")].at(-1),x=h&&h.compareDocumentPosition(v)&Node.DOCUMENT_POSITION_PRECEDING;g?.opened===a&&x&&h.childElementCount?h.scrollIntoView({block:"nearest"}):i>0&&U(t,()=>q(a,i-1))},H=a=>{T=a;for(let[i,{button:b}]of w)b.tabIndex=i===T?0:-1};y(t,o,"keydown",a=>{let i=Et.get(a.key);if(i===void 0||!g)return;a.preventDefault();let b=g.rows.map(([x])=>x),h=Math.min(Math.max(b.indexOf(T)+i,0),b.length-1);H(b[h]??""),w.get(T)?.button.focus()}),$(t,o,a=>{let i=a.target instanceof Element?a.target.closest("tr"):null,b=document.getSelection()?.toString()&&a.detail>0;i?.dataset.run!==void 0&&!b&&P(i.dataset.run)}),$(t,m,()=>N({type:"more"}));let d=({columns:a})=>{for(let[i,b,h,x]of a){let c=O.get(i);if(!c){let S=D(),L=D({"aria-hidden":"true"}),C=B("nba-sort",S,L),R=p("th",{scope:"col",role:"columnheader","data-of":i},C);$(t,C,()=>N({type:"sort",column:i})),c={th:R,button:C,label:S,mark:L},O.set(i,c),n.append(R)}A(c.label,b),A(c.mark,h==="ascending"?"\u25B2":h==="descending"?"\u25BC":""),_(c.th,"aria-sort",h||null),c.th.hidden=!x}n.querySelector('[data-of="open"]')||n.append(p("td",{role:"cell","data-of":"open"}))},u=({columns:a,open:i},b)=>{let h=a.map(([L])=>X("td",{role:"cell","data-of":L})),x=B("nba-button",i),c=p("tr",{role:"row","data-run":b},...h);c.append(p("td",{role:"cell","data-of":"open"},x)),x.tabIndex=-1;let S={row:c,button:x,cells:h};return w.set(b,S),S};return{el:v,update:a=>{g=a,d(a);let i=a.columns.filter(([c,,,S])=>S&&/deadline|cost/.test(c));v.parentElement?.classList.toggle("nba-many",i.length>0);let b=new Set(a.rows.map(([c])=>c)),h=document.activeElement;for(let[c,{row:S}]of w)b.has(c)||(S.remove(),w.delete(c));let x=null;for(let[c,S,L]of a.rows){let{row:C,button:R,cells:bt}=w.get(c)??u(a,c);S.forEach((W,Q)=>{let j=bt[Q];j&&(A(j,W),_(j,"title",W.length>12?W:null),j.hidden=!a.columns[Q]?.[3])}),_(C,"data-status",L),_(C,"data-open",c===a.opened),Z(R,c===a.opened),A(R,c===a.opened?a.close:a.open),_(R,"aria-label",`${R.textContent} ${c}`);let V=x===null?o.firstElementChild:x.nextElementSibling;V!==C&&o.insertBefore(C,V),x=C}h instanceof HTMLElement&&o.contains(h)&&h.focus(),b.has(T)||H(a.rows[0]?.[0]??""),K(r,a.rows.length?"":a.none),s.hidden=!a.columns.length,A(l,a.said),E.hidden=!a.said,K(m,a.more)},disable:M}}var Tt=15e3,Ct=150,At=240,It=`
.nba-chooser[hidden] { display: none; }
.nbagent > .nba-chooser { padding: 0 16px 12px; }
.nba-chooser { display: flex; flex-wrap: wrap; gap: 6px 16px; padding: 2px 0 8px; font: 13px/1.4 var(--jp-ui-font-family, system-ui, sans-serif); color: var(--jp-ui-font-color1, CanvasText); }
.nba-chooser label { display: flex; align-items: center; gap: 6px; white-space: nowrap; color: var(--jp-ui-font-color1, CanvasText); }
.nba-heard { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.nba-chooser label[hidden] { display: none; }
.nba-chooser :is(select, input) { box-sizing: border-box; font: inherit; min-height: 28px; max-width: 16em; padding: 2px 6px; border: 1px solid color-mix(in srgb, currentColor 45%, transparent); border-radius: 4px; background: var(--jp-layout-color1, Canvas); color: inherit; }
.nba-chooser :is(select, input):focus-visible { outline: 2px solid var(--jp-brand-color1, Highlight); outline-offset: 1px; }
`;function ft(e,t,n,o=At){let r=t.closest(".widget-vbox")?.querySelector("section.nbagent > .nba-header");r?r.after(e):o>0&&U(n,()=>ft(e,t,n,o-1))}var Gt={render({model:e,el:t,signal:n}){let o=Y({model:e,signal:n}),r=document.createElement("style");r.textContent=It;let s=document.createElement("div");s.className="nba-chooser",s.setAttribute("role","group");let l=p("div",{class:"nba-heard",role:"status"}),m=()=>A(l,o.get("said")??"");t.append(r,s,l);let k=new Map,E=()=>{let{labels:d,...u}=o.get("choices");s.hidden=!d,d?.text&&!k.has("text")&&T(d.text);for(let[f,a]of Object.entries(u)){let i=k.get(f)??g(f,d[f]),b=JSON.stringify(a);if(i instanceof HTMLSelectElement&&i.dataset.shown!==b){i.dataset.shown=b;let x=o.get("chosen")[f]??"";i.replaceChildren(...a.map(v)),i.value=a.some(([c])=>c===x)?x:""}let h=i.parentElement;h.hidden=a.length<2}},v=([d,u])=>new Option(u,d),w=(d,u,f)=>(s.append(p("label","",u,f)),k.set(d,f),f),O=(d,u)=>{o.set("chosen",{...o.get("chosen"),[d]:u}),o.save_changes()},g=(d,u)=>{let f=w(d,u,p("select"));return ot(n,f,()=>O(d,f.value)),f},T=d=>{let u=w("text",d,p("input",{type:"search"})),f=F(n);u.value=o.get("chosen").text??"",et(n,u,()=>f.start(Ct,()=>O("text",u.value)))},N=nt(n),M=d=>{try{return o.send(d),!0}catch{return N.abort(),!1}},P=()=>{document.visibilityState!=="visible"||!s.isConnected||M({type:"shown"})},q=()=>{};if(dt(o,n,()=>{N.abort();for(let d of k.values())d.disabled=!0;q()}),o.on("change:choices",E),o.on("change:said",m),at(N.signal,Tt,P),y(N.signal,document,"visibilitychange",P),I(n,()=>{o.off("change:choices",E),o.off("change:said",m),s.remove()}),E(),o.get("table")){let d=p("div","nbagent nba-runs"),u=ut({send:M,signal:n}),f=()=>u.update(o.get("table"));q=u.disable,r.textContent+=pt,t.append(d),d.append(s,u.el),o.on("change:table",f),I(n,()=>o.off("change:table",f)),f(),J(d,n)}else J(s,n),ft(s,t,n);P()}};export{Gt as default};
