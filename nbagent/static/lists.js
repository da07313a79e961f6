function p(t,e={},...o){let a=document.createElement(t),s=typeof e=="string"?{class:e||null}:e;for(let[g,m]of Object.entries(s))S(a,g,m);return ct(a,...o),a}var j=(t,...e)=>p("div",t,...e),P=(t,...e)=>p("span",t,...e);function ct(t,...e){t.replaceChildren(...dt(e))}function W(t,e,...o){let a=p(t,e,...o);return a.dir="auto",a}function _(t,...e){return p("button",{type:"button",class:t},...e)}function dt(t){return t.filter(Boolean)}function S(t,e,o){o==null||o===!1?t.removeAttribute(e):o===!0?t.setAttribute(e,""):t.getAttribute(e)!==String(o)&&t.setAttribute(e,String(o))}function G(t,e){S(t,"aria-expanded",String(e))}function C(t,e){t.textContent!==e&&(t.textContent=e)}function $(t,e){C(t,e),t.hidden=e===""}var V=t=>t.preventDefault();function h(t,e,o,a,s=!1){e.addEventListener(o,a,{signal:t,capture:s})}function F(t,e,o){h(t,e,"click",o)}function Q(t,e,o){h(t,e,"input",o)}function X(t,e,o){h(t,e,"change",o)}function R(t,e){t.addEventListener("abort",e,{once:!0})}function Z(t){let e=new AbortController;return h(e.signal,t,"abort",()=>e.abort()),e}function tt(t,e,o){let a=setInterval(o,e);R(t,()=>clearInterval(a))}function et(t,e){requestAnimationFrame(()=>{t.aborted||e()})}function B(t){let e=0,o=()=>clearTimeout(e);return R(t,o),{stop:o,start(a,s){o(),t.aborted||(e=setTimeout(s,a))}}}var ot="data-lm-suppress-shortcuts";function U(t,e){t.setAttribute(ot,"true"),h(e,window,"keydown",a=>{let s=a.composedPath()[0];if(!(s instanceof Element)||!t.contains(s))return;let g=!nt(a);for(let m of[t,s])m.toggleAttribute(ot,g)},!0),h(e,t,"keydown",a=>{let s=a.target;nt(a)||(a.stopPropagation(),a.key==="Enter"&&a.shiftKey&&!(s instanceof HTMLTextAreaElement)&&V(a))})}var lt="acvxyz";function nt({key:t,ctrlKey:e,metaKey:o,altKey:a}){return(e||o)&&!a&&/^[a-z]$/i.test(t)&&!lt.includes(t.toLowerCase())}var pt=240,ut=new Map([["ArrowDown",1],["ArrowUp",-1],["Home",Number.NEGATIVE_INFINITY],["End",Number.POSITIVE_INFINITY]]),Y=".nba-runs.nba-runs:not(#nba)",at=(t,e)=>`
@container nbagent (max-width: ${e}px) {
  ${t} {
    & :is(table, tbody) { display: block; }
    & thead { display: block; position: sticky; top: 0; z-index: 1; background: color-mix(in srgb, var(--nba-ink) 5%, var(--nba-page)); border-bottom: 1px solid var(--nba-line); }
    & thead tr { display: flex; flex-wrap: wrap; padding: 0 2px; }
    & thead :is(th, td)[data-of] { position: static; width: auto; border: 0; background: none; }
    & thead [data-of="open"] { display: none; }
    & .nba-sort { padding: 3px 8px; }
    & tbody tr { display: flex; flex-wrap: wrap; column-gap: 10px; align-items: baseline; position: relative; padding: 8px 76px 8px 10px; border-bottom: 1px solid var(--nba-line); }
    & tbody tr:last-child { border-bottom: 0; }
    & tbody td[data-of] { display: block; width: auto; max-width: 100%; padding: 0; border: 0; text-align: start; font-size: 12px; line-height: 18px; }
    & tbody td[data-of]:not([data-of="status"], [data-of="prompt"]) { color: var(--nba-soft); }
    & tbody tr td[data-of]:is([data-of="prompt"], [data-of="status"]) { width: 100%; order: -1; }
    & tbody tr td[data-of][data-of="prompt"] { order: -2; font-size: 13px; line-height: 20px; }
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
  & [data-of="id"] { width: 13%; }
  & td[data-of="id"] { font: 12px/20px var(--nba-mono); }
  & :is([data-of="agent"], [data-of="asks"]) { width: 10%; }
  & [data-of="status"] { width: 19%; }
  & [data-of="age"] { width: 64px; }
  & [data-of="deadline"] { width: 78px; }
  & [data-of="cost"] { width: 72px; }
  & [data-of="open"] { width: 72px; text-align: end; }
  & td:is([data-of="age"], [data-of="deadline"], [data-of="cost"]) { font-variant-numeric: tabular-nums; }
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
`;function st({send:t,signal:e}){let o=p("tr",{role:"row"}),a=p("tbody",{role:"rowgroup"}),s=p("p",{class:"nba-none",hidden:!0}),g=p("table",{role:"table","aria-label":"Runs"});g.append(p("thead",{role:"rowgroup"},o),a);let m=P({role:"status"}),L=_("nba-button"),M=P({role:"alert",hidden:!0}),v=j("",j("nba-scroll",g,s),j("nba-foot",m,L,M)),k=new Map,D=new Map,w=null,E="",I=n=>{let r=t(n);return $(M,r?"":w?.gone??""),r},c=n=>{d(n),I({type:"open",run:n})&&w?.opened!==n&&l(n)},l=(n,r=pt)=>{let f=[...(v.closest(".widget-vbox, .jp-OutputArea-output")??v).querySelectorAll("section.nbagent")].at(-1),b=f&&f.compareDocumentPosition(v)&Node.DOCUMENT_POSITION_PRECEDING;w?.opened===n&&b&&f.childElementCount?f.scrollIntoView({block:"nearest"}):r>0&&et(e,()=>l(n,r-1))},d=n=>{E=n;for(let[r,{button:u}]of k)u.tabIndex=r===E?0:-1};h(e,a,"keydown",n=>{let r=ut.get(n.key);if(r===void 0||!w)return;n.preventDefault();let u=w.rows.map(([b])=>b),f=Math.min(Math.max(u.indexOf(E)+r,0),u.length-1);d(u[f]??""),k.get(E)?.button.focus()}),F(e,a,n=>{let r=n.target instanceof Element?n.target.closest("tr"):null,u=document.getSelection()?.toString()&&n.detail>0;r?.dataset.run!==void 0&&!u&&c(r.dataset.run)}),F(e,L,()=>I({type:"more"}));let N=({columns:n})=>{for(let[r,u,f,b]of n){let i=D.get(r);if(!i){let x=P(),A=P({"aria-hidden":"true"}),y=_("nba-sort",x,A),O=p("th",{scope:"col",role:"columnheader","data-of":r},y);F(e,y,()=>I({type:"sort",column:r})),i={th:O,button:y,label:x,mark:A},D.set(r,i),o.append(O)}C(i.label,u),C(i.mark,f==="ascending"?"\u25B2":f==="descending"?"\u25BC":""),S(i.th,"aria-sort",f||null),i.th.hidden=!b}o.querySelector('[data-of="open"]')||o.append(p("td",{role:"cell","data-of":"open"}))},T=({columns:n,open:r},u)=>{let f=n.map(([A])=>W("td",{role:"cell","data-of":A})),b=_("nba-button",r),i=p("tr",{role:"row","data-run":u},...f);i.append(p("td",{role:"cell","data-of":"open"},b)),b.tabIndex=-1;let x={row:i,button:b,cells:f};return k.set(u,x),x};return{el:v,update:n=>{w=n,N(n);let r=n.columns.filter(([i,,,x])=>x&&/deadline|cost/.test(i));v.parentElement?.classList.toggle("nba-many",r.length>0);let u=new Set(n.rows.map(([i])=>i)),f=document.activeElement;for(let[i,{row:x}]of k)u.has(i)||(x.remove(),k.delete(i));let b=null;for(let[i,x,A]of n.rows){let{row:y,button:O,cells:it}=k.get(i)??T(n,i);x.forEach((H,K)=>{let z=it[K];z&&(C(z,H),S(z,"title",H.length>12?H:null),z.hidden=!n.columns[K]?.[3])}),S(y,"data-status",A),S(y,"data-open",i===n.opened),G(O,i===n.opened),C(O,i===n.opened?n.close:n.open),S(O,"aria-label",`${O.textContent} ${i}`);let J=b===null?a.firstElementChild:b.nextElementSibling;J!==y&&a.insertBefore(y,J),b=y}f instanceof HTMLElement&&a.contains(f)&&f.focus(),u.has(E)||d(n.rows[0]?.[0]??""),$(s,n.rows.length?"":n.none),C(m,n.said),$(L,n.more)}}}var ft=15e3,bt=150,xt=`
.nba-chooser { display: flex; flex-wrap: wrap; gap: 6px 16px; padding: 2px 0 8px; font: 13px/1.4 var(--jp-ui-font-family, system-ui, sans-serif); color: var(--jp-ui-font-color1, CanvasText); }
.nba-chooser label { display: flex; align-items: center; gap: 6px; white-space: nowrap; color: var(--jp-ui-font-color1, CanvasText); }
.nba-chooser label[hidden] { display: none; }
.nba-chooser :is(select, input) { box-sizing: border-box; font: inherit; min-height: 28px; max-width: 16em; padding: 2px 6px; border: 1px solid color-mix(in srgb, currentColor 45%, transparent); border-radius: 4px; background: var(--jp-layout-color1, Canvas); color: inherit; }
.nba-chooser :is(select, input):focus-visible { outline: 2px solid var(--jp-brand-color1, Highlight); outline-offset: 1px; }
`,Nt={render({model:t,el:e,signal:o}){let a=document.createElement("style");a.textContent=xt;let s=document.createElement("div");s.className="nba-chooser",s.setAttribute("role","group"),e.append(a,s);let g=new Map,m=()=>{let{labels:c,...l}=t.get("choices");s.hidden=!c,c?.text&&!g.has("text")&&D(c.text);for(let[d,N]of Object.entries(l)){let T=g.get(d)??k(d,c[d]),q=JSON.stringify(N);if(T instanceof HTMLSelectElement&&T.dataset.shown!==q){T.dataset.shown=q;let r=t.get("chosen")[d]??"";T.replaceChildren(...N.map(L)),T.value=N.some(([u])=>u===r)?r:""}let n=T.parentElement;n.hidden=N.length<2}},L=([c,l])=>new Option(l,c),M=(c,l,d)=>(s.append(p("label","",l,d)),g.set(c,d),d),v=(c,l)=>{t.set("chosen",{...t.get("chosen"),[c]:l}),t.save_changes()},k=(c,l)=>{let d=M(c,l,p("select"));return X(o,d,()=>v(c,d.value)),d},D=c=>{let l=M("text",c,p("input",{type:"search"})),d=B(o);l.value=t.get("chosen").text??"",Q(o,l,()=>d.start(bt,()=>v("text",l.value)))},w=Z(o),E=c=>{try{return t.send(c),!0}catch{return w.abort(),!1}},I=()=>{document.visibilityState!=="visible"||!s.isConnected||E({type:"shown"})};if(t.on("change:choices",m),tt(w.signal,ft,I),h(w.signal,document,"visibilitychange",I),R(o,()=>{t.off("change:choices",m),s.remove()}),m(),t.get("table")){let c=p("div","nbagent nba-runs"),l=st({send:E,signal:o}),d=()=>l.update(t.get("table"));a.textContent+=rt,e.append(c),c.append(s,l.el),t.on("change:table",d),R(o,()=>t.off("change:table",d)),d(),U(c,o)}else U(s,o);I()}};export{Nt as default};
