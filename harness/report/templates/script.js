(function(){
"use strict";
var $=function(s,r){return Array.prototype.slice.call((r||document).querySelectorAll(s))};
var one=function(s){return document.querySelector(s)};
function sortTable(table,index,kind,up){
  var body=table.tBodies[0],rows=$("tr",body);
  var keys=rows.map(function(r){var c=r.cells[index];return c.hasAttribute("data-sort")?c.getAttribute("data-sort"):c.textContent.trim()});
  var order=rows.map(function(_,i){return i});
  order.sort(function(a,b){
    var x=keys[a],y=keys[b];
    if(x===""||y==="")return x===y?a-b:(x===""?1:-1);
    var d=kind==="text"&&isNaN(x)?x.localeCompare(y):parseFloat(x)-parseFloat(y);
    if(isNaN(d))d=x.localeCompare(y);
    return (up?d:-d)||a-b;
  });
  order.forEach(function(i){body.appendChild(rows[i])});
}
$("table.sortable").forEach(function(table){
  $("th button",table).forEach(function(b,i){
    b.addEventListener("click",function(){
      var th=b.parentNode,up=th.getAttribute("aria-sort")!=="ascending";
      $("th",table).forEach(function(t){t.removeAttribute("aria-sort")});
      th.setAttribute("aria-sort",up?"ascending":"descending");
      sortTable(table,i,b.getAttribute("data-kind"),up);
    });
  });
});
var rows=$("table.claims tbody tr[id]"),cells=$(".cells a"),glyph="",shown=null;
rows.forEach(function(r){r.words=(r.id+" "+r.textContent).toLowerCase()});
function value(id){var e=document.getElementById(id);return e?e.value:""}
function apply(write){
  var words=value("q").toLowerCase().split(/\s+/).filter(Boolean),p=value("fp"),v=value("fv"),e=value("fe"),t=value("ft"),n=0,ok={};
  rows.forEach(function(r){
    var good=(!p||r.dataset.paper===p)&&(!v||r.dataset.v===v||(v==="!"&&r.dataset.g==="!"))&&(!e||r.dataset.e===e)&&(!t||r.dataset.t===t)&&words.every(function(w){return r.words.indexOf(w)>=0});
    if(r.id===shown)good=true;
    r.hidden=!good;if(good){n++;ok[r.id]=1}
  });
  cells.forEach(function(c){c.classList.toggle("dim",!ok[c.dataset.id])});
  $(".chip").forEach(function(c){c.setAttribute("aria-pressed",String(c.dataset.glyph===v))});
  var o=one("#count");if(o)o.textContent=n+" of "+rows.length;
  var none=one("#none");if(none)none.hidden=n>0;
  if(write){
    var s=[["q",value("q")],["fp",p],["fv",v],["fe",e],["ft",t]].filter(function(x){return x[1]}).map(function(x){return x[0]+"="+encodeURIComponent(x[1])}).join("&");
    history.replaceState(null,"",s?"#?"+s:location.pathname+location.search);
  }
}
["q","fp","fv","fe","ft"].forEach(function(id){var e=document.getElementById(id);if(e)e.addEventListener("input",function(){shown=null;apply(true)})});
$("#reset,#reset2").forEach(function(b){b.addEventListener("click",function(){["q","fp","fv","fe","ft"].forEach(function(id){var e=document.getElementById(id);if(e)e.value=""});shown=null;apply(true)})});
$(".chip").forEach(function(c){c.addEventListener("click",function(){var f=document.getElementById("fv");if(!f)return;f.value=f.value===c.dataset.glyph?"":c.dataset.glyph;shown=null;apply(true)})});
function fromHash(){
  var h=decodeURIComponent(location.hash.slice(1));
  if(h.charAt(0)==="?"){h.slice(1).split("&").forEach(function(x){var k=x.split("="),e=document.getElementById(k[0]);if(e)e.value=k.slice(1).join("=")});apply(false);return}
  var r=h&&document.getElementById(h);
  $("tr.hit").forEach(function(x){x.classList.remove("hit")});
  if(r&&r.tagName==="TR"){shown=r.id;apply(false);r.classList.add("hit");var d=r.querySelector("details");if(d)d.open=true;r.scrollIntoView({block:"center"})}
}
window.addEventListener("hashchange",fromHash);
var hint=one("#hint"),rest=hint?hint.textContent:"";
$(".cells").forEach(function(box){
  var mine=$("a",box);if(!mine.length)return;
  mine[0].tabIndex=0;
  function go(i){i=Math.max(0,Math.min(mine.length-1,i));mine.forEach(function(m){m.tabIndex=-1});mine[i].tabIndex=0;mine[i].focus()}
  box.addEventListener("keydown",function(ev){
    var i=mine.indexOf(document.activeElement);if(i<0)return;
    var y=mine[0].offsetTop,per=mine.filter(function(m){return m.offsetTop===y}).length;
    var step={ArrowRight:1,ArrowLeft:-1,ArrowDown:per,ArrowUp:-per}[ev.key];
    if(ev.key==="Home"){go(0)}else if(ev.key==="End"){go(mine.length-1)}else if(step){go(i+step)}else return;
    ev.preventDefault();
  });
  function tell(ev){var a=ev.target.closest&&ev.target.closest("a");if(a&&hint)hint.textContent=a.getAttribute("aria-label")}
  box.addEventListener("mouseover",tell);box.addEventListener("focusin",tell);
  box.addEventListener("mouseleave",function(){if(hint)hint.textContent=rest});
});
$(".copy").forEach(function(b){b.addEventListener("click",function(){
  var t=b.dataset.copy,code=b.parentNode.querySelector("code");
  function select(){var r=document.createRange();r.selectNodeContents(code);var s=getSelection();s.removeAllRanges();s.addRange(r);b.textContent="selected"}
  if(navigator.clipboard&&window.isSecureContext){navigator.clipboard.writeText(t).then(function(){b.textContent="copied"},select)}else{select()}
})});
if(rows.length){apply(false)}
if(location.hash)fromHash();
window.addEventListener("beforeprint",function(){$("details").forEach(function(d){d.open=true})});
})();
