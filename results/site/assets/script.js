(function(){
"use strict";
const all=(s,r)=>Array.from((r||document).querySelectorAll(s)),one=(s,r)=>(r||document).querySelector(s),by=id=>document.getElementById(id);
document.documentElement.classList.add("js");
const order=new Intl.Collator("en",{numeric:true}).compare;
const note=[];
function write(){
const parts=[];
note.forEach(f=>f().forEach(x=>{if(x[1])parts.push(x[0]+"="+encodeURIComponent(x[1]))}));
try{history.replaceState(null,"",parts.length?"#?"+parts.join("&"):location.pathname+location.search)}catch(e){}
}
function key(row,i){
const c=row.cells[i],t=!c?"":c.dataset.sort===undefined?c.textContent.trim():c.dataset.sort;
return t===""?null:isNaN(t)?t:+t;
}
function sort(table,i,up){
const body=table.tBodies[0],list=Array.from(body.rows).map(r=>[key(r,i),r]);
list.sort((a,b)=>{
const x=a[0],y=b[0];
let d=0;
if(x===null||y===null)d=(x===null)-(y===null);
else if(typeof x==="number")d=typeof y==="number"?x-y:-1;
else d=typeof y==="number"?1:order(x,y);
if(x!==null&&y!==null&&!up)d=-d;
return d||a[1].place-b[1].place;
});
const parts=document.createDocumentFragment();
list.forEach(x=>parts.append(x[1]));
body.append(parts);
all("thead th",table).forEach((t,j)=>{if(i===j)t.setAttribute("aria-sort",up?"ascending":"descending");else t.removeAttribute("aria-sort")});
if(table.pick)table.pick.value=i;
}
all("table.sortable").forEach((table,n)=>{
const heads=all("thead th",table),name=(n?table.id+".":"")+"sort";
Array.from(table.tBodies[0].rows).forEach((r,i)=>{r.place=i});
heads.forEach((th,i)=>{
const b=one("button",th);
if(b)b.addEventListener("click",()=>{sort(table,i,th.getAttribute("aria-sort")!=="ascending");write()});
});
table.read=h=>{const m=/^(\d+)(d?)$/.exec(h[name]||"");if(m&&heads[m[1]])sort(table,+m[1],!m[2])};
note.push(()=>{const i=heads.findIndex(t=>t.hasAttribute("aria-sort"));return i<0?[]:[[name,i+(heads[i].getAttribute("aria-sort")==="descending"?"d":"")]]});
});
const cells=all(".cells a");
all("form.filters").forEach((form,n)=>{
const table=by(form.dataset.table);
if(!table)return;
const rows=Array.from(table.tBodies[0].rows),fields=all("input,select",form),none=form.nextElementSibling,pre=n?form.id+".":"";
const chips=form.id==="filters"?all(".chip"):[];
form.shown=null;
form.apply=()=>{
const picks=fields.filter(f=>f.tagName==="SELECT"&&f.value),q=fields.find(f=>f.type==="search"),words=q?q.value.toLowerCase().split(/\s+/).filter(Boolean):[],ok=new Set();
rows.forEach(r=>{
if(words.length&&r.words===undefined)r.words=(r.id+" "+r.textContent).toLowerCase();
const good=r.id&&r.id===form.shown||picks.every(f=>(r.dataset[f.name]||"").split(" ").includes(f.value))&&words.every(w=>r.words.includes(w));
if(r.hidden===good)r.hidden=!good;
if(good)ok.add(r);
});
one("output",form).textContent=ok.size+" of "+rows.length;
none.hidden=ok.size>0;
if(form.id==="filters"){
const ids=new Set(Array.from(ok,r=>r.id)),g=form.elements.g.value;
cells.forEach(c=>c.classList.toggle("dim",!ids.has(c.hash.slice(1))));
chips.forEach(c=>c.setAttribute("aria-pressed",String(c.dataset.glyph===g)));
}
};
const changed=()=>{form.shown=null;form.apply();write()};
const clear=()=>{fields.forEach(f=>{f.value=""});changed();const q=one("input",form);if(q)q.focus()};
form.addEventListener("submit",e=>e.preventDefault());
form.addEventListener("input",e=>{if(e.target.name)changed()});
form.addEventListener("reset",e=>{e.preventDefault();clear()});
one("button",none).addEventListener("click",clear);
chips.forEach(c=>c.addEventListener("click",()=>{const v=form.elements.g;v.value=v.value===c.dataset.glyph?"":c.dataset.glyph;changed()}));
note.push(()=>fields.filter(f=>f.name).map(f=>[pre+f.name,f.value]));
form.read=h=>{fields.forEach(f=>{if(f.name)f.value=h[pre+f.name]||""});form.apply()};
const heads=all("thead th",table);
if(table.classList.contains("sortable")&&heads.length){
const label=document.createElement("label"),pick=document.createElement("select");
label.className="phone";label.append("Sort by ",pick);
pick.append(new Option("order of the page","-1"));
heads.forEach((t,i)=>pick.append(new Option(t.textContent,i)));
pick.addEventListener("change",()=>{
if(+pick.value>=0)sort(table,+pick.value,true);
else{heads.forEach(t=>t.removeAttribute("aria-sort"));table.tBodies[0].append(...rows)}
write();
});
table.pick=pick;
form.insertBefore(label,one("button",form));
}
});
function go(){
const raw=location.hash.slice(1),plain=x=>{try{return decodeURIComponent(x)}catch(e){return x}},h=plain(raw);
all(".hit").forEach(x=>x.classList.remove("hit"));
if(h[0]==="?"){
const found={};
raw.slice(1).split("&").forEach(x=>{const i=x.indexOf("=");found[x.slice(0,i)]=plain(x.slice(i+1))});
all("form.filters").forEach(f=>f.read&&f.read(found));
all("table.sortable").forEach(t=>t.read&&t.read(found));
return;
}
const hit=h&&by(h);
if(!hit)return;
for(let p=hit;p;p=p.parentElement)if(p.tagName==="DETAILS")p.open=true;
if(hit.tagName!=="TR")return;
all("form.filters").forEach(f=>{if(f.apply&&by(f.dataset.table).contains(hit)){f.shown=h;f.apply()}});
const d=one("details",hit);
if(d)d.open=true;
hit.classList.add("hit");
hit.scrollIntoView({block:"center"});
}
window.addEventListener("hashchange",go);
const hint=by("hint"),rest=hint&&hint.textContent;
function tell(e){
const a=e.target.closest("a");
if(!a||!hint)return;
const row=by(a.hash.slice(1)),said=row&&one(".statement",row);
hint.textContent=a.getAttribute("aria-label")+(said?". "+said.textContent:"");
}
all(".cells").forEach(box=>{
const mine=all("a",box);
mine.forEach((m,i)=>{m.tabIndex=i?-1:0});
box.addEventListener("keydown",e=>{
const i=mine.indexOf(document.activeElement);
if(i<0||e.altKey||e.ctrlKey||e.metaKey)return;
const per=mine.filter(m=>m.offsetTop===mine[0].offsetTop).length,last=mine.length-1;
const to={ArrowRight:i+1,ArrowLeft:i-1,ArrowDown:i+per,ArrowUp:i-per,Home:0,End:last}[e.key];
if(to===undefined)return;
e.preventDefault();
if(to<0||to>last)return;
mine[i].tabIndex=-1;mine[to].tabIndex=0;mine[to].focus();
});
box.addEventListener("mouseover",tell);
box.addEventListener("focusin",tell);
["mouseleave","focusout"].forEach(x=>box.addEventListener(x,()=>{if(hint)hint.textContent=rest}));
});
document.addEventListener("toggle",e=>{const r=e.target.closest("tr");if(r)r.classList.toggle("open",e.target.open)},true);
all("code.cmd").forEach(code=>{
const b=document.createElement("button");
const say=w=>{b.textContent=w;b.setAttribute("aria-label",w+": "+code.textContent)},said=w=>{say(w);setTimeout(say,2000,"copy")};
b.type="button";b.className="copy";say("copy");
b.addEventListener("click",()=>{
const mark=()=>{getSelection().selectAllChildren(code);said("selected")};
if(navigator.clipboard)navigator.clipboard.writeText(code.textContent).then(()=>said("copied"),mark);else mark();
});
code.after(b);
});
window.addEventListener("beforeprint",()=>all("img[loading]").forEach(i=>{i.loading="eager"}));
const here=one("nav [aria-current]");
if(here){const u=here.closest("nav");u.scrollLeft=here.offsetLeft-(u.clientWidth-here.offsetWidth)/2}
if(location.hash)go();
})();
