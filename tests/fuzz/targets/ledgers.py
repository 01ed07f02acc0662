"""YAML that people write: ledgers of claims and cards of datasets."""

from __future__ import annotations

import msgspec

from dgbench.datasets.catalogue import load_cards
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.plain import as_plain
from dgbench.harness.claims.shown import show
from dgbench.harness.claims.verdict import decide
from dgbench.lab.paper import Finding
from tests.fuzz.target import sane, scratch, target

TOKENS = (
    *(b"!!binary x", b"!!timestamp x", b"!!bool x", b"!!python/object:os.system ", b"!!int x"),
    *(b"2001-99-99", b"0x", b"0b_", b"1:99", b".nan", b".inf", b"<<: ", b"&a ", b"*a", b"? [a]"),
    *(b"[" * 3000, b"- " * 3000, b"{" * 3000, b"\xff", b"\x00", b"\xef\xbb\xbf", b"---\n"),
    *(b"...\n", b"- id: x\n", b"null", b"~", b"true", b"9" * 5000, b"1e400", b"!!set {a}"),
    *(b"!!omap [a: 1]", b"value: ", b"needs: {gpus: x}", b"tolerance: 2", b"'", b'"\\ud800"'),
)
CLAIMS = b"""\
- id: toy-speedup
  where: Table 1
  statement: It is faster.
  kind: speedup
  value: {low: 1.2, high: 9.5}
  unit: x (time)
  subject: Toy
  baseline: null
  workload: {model: [A, B], frame: 16}
  hardware: 1x V100
  needs: {gpus: 1, cpu_only_ok: false, real_dataset_required: true}
  twin: direction
  tolerance: 0.1
  notes: 'a reading'
- id: toy-share
  where: '1'
  statement: A share.
  kind: utilisation
  value: 39
  unit: '% of time'
  needs: {gpus: 0}
"""
FINDINGS = (
    Finding(),
    Finding(measured=2.0, low=1.5, high=2.5),
    Finding(measured=-1.0, low=-2.0, high=0.5),
    Finding(measured=float("nan")),
    Finding(holds=True, model="m"),
    Finding(measured={"a": 1.0, "b": [1, 2]}, direction=True, deviation=1.0),
)


@target("claims", seeds=[CLAIMS], kind="lines", tokens=TOKENS)
def claims(data: bytes) -> None:
    """claims.yaml, with a verdict for everything in it."""
    path = scratch("claims") / "claims.yaml"
    path.write_bytes(data)
    found = load_ledger(path)
    sane(found and len({c.id for c in found}) == len(found), "ids are not unique")
    for claim in found:
        sane(claim.id.strip() and claim.statement.strip(), "a claim that says nothing")
        show(claim.value, claim.unit, printed=True)
        for finding in FINDINGS:
            verdict = decide(claim, finding)
            sane(verdict.glyph in "RdXp-" and verdict.reason, "a verdict without a reason")
            msgspec.json.encode(as_plain(claim, verdict))


CARD = b"""\
- name: tiny
  title: Tiny
  about: Five events.
  kind: events
  aliases: [small, little]
  published: {nodes: 3, edges: 5, t_first: 0}
  papers:
    pipad: {called: Tiny, nodes: 3, snapshots: 2, span: two days}
  addresses: [{url: 'https://example.org/tiny', mark: seen, note: page}]
  forms:
    - name: held
      files: [{path: tiny/tiny.csv.gz, bytes: 90, sha256: 00ff, content_sha256: ff00}]
      reader: {format: table, columns: [src, dst, t], ids: compact, delimiter: comma, skip: 1}
      counts: {nodes: 3, edges: 5}
      notes: [a note]
"""


@target("cards", seeds=[CARD], kind="lines", tokens=(*TOKENS, b"../", b"/etc/passwd", b"http://"))
def cards(data: bytes) -> None:
    """Cards of datasets."""
    path = scratch("cards") / "cards.yaml"
    path.write_bytes(data)
    for card in load_cards(path):
        sane(card.name.strip(), "a card without a name")
        for ref in (*card.beside, *(r for form in card.forms for r in form.files)):
            sane(not ref.path.startswith("/") and ".." not in ref.path.split("/"), ref.path)
        again = msgspec.convert(msgspec.to_builtins(card), type(card))
        sane(again == card or "nan" in repr(card), "a card changes when it is written")
