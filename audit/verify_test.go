package audit_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
	"github.com/brig-run/brig/internal/attack"
)

// newChain creates n lines.
func newChain(n int) []brig.AuditLine {
	var out []brig.AuditLine
	var last brig.AuditLine
	for i := range n {
		last = audit.NewLine(last, brig.Event{
			At: time.Date(2026, 11, 21, 9, 0, i, 123456789, time.UTC), Op: "run", Actor: "ann", Tenant: "acme",
			Sandbox: brig.ID("sb" + strconv.Itoa(i/2)), Phase: []brig.Phase{brig.Intent, brig.Finish}[i%2],
			Detail: map[string]string{brig.DetailCode: fmt.Sprintf("sha256:%064d", i), brig.DetailLabel + "team": "<a>"},
		})
		out = append(out, last)
	}
	return out
}

func headOf(lines []brig.AuditLine) brig.AuditHead {
	l := lines[len(lines)-1]
	return brig.AuditHead{Tenant: l.Tenant, Seq: l.Seq, Hash: l.Hash, At: l.At}
}

// export returns the rows of an export of lines.
func export(t *testing.T, lines []brig.AuditLine, head brig.AuditHead, q brig.AuditQuery, begins int64) []string {
	t.Helper()
	var b bytes.Buffer
	w, err := audit.NewWriter(&b, q, begins)
	for _, l := range lines {
		err = errors.Join(err, w.WriteLine(l))
	}
	if err = errors.Join(err, w.WriteEnd(head)); err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func verify(lines []string) (*audit.Report, error) {
	return audit.VerifyExport(strings.NewReader(strings.Join(lines, "")), nil)
}

// tampering changes an export's records and returns the position, from 1, of
// the first record that is then invalid. It returns 0 if nothing has changed.
type tampering func(r *rand.Rand, rows []string) ([]string, int)

func tamperings(t *testing.T) map[string]tampering {
	change := func(row string, f func(*audit.Line), rehash bool) string {
		var l audit.Line
		if err := json.Unmarshal([]byte(row), &l); err != nil {
			t.Fatal(err)
		}
		f(&l)
		if rehash {
			noun, err := l.Domain()
			if err != nil {
				t.Fatal(err)
			}
			noun.Hash = audit.HashLine(noun)
			l = audit.FromLine(noun)
		}
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(l); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	flips := []func(*audit.Line){
		func(l *audit.Line) { l.Seq += 3 },
		func(l *audit.Line) { l.Time = l.Time.Add(time.Nanosecond) },
		func(l *audit.Line) { l.Op += "x" },
		func(l *audit.Line) { l.Phase = "refused" },
		func(l *audit.Line) { l.Kind = "internal" },
		func(l *audit.Line) { l.Tenant = "other" },
		func(l *audit.Line) { l.Actor = "bob" },
		func(l *audit.Line) { l.Sandbox = "sbx" },
		func(l *audit.Line) { l.Detail[brig.DetailCode] = "sha256:0" },
		func(l *audit.Line) { l.Detail["more"] = "" },
		func(l *audit.Line) { delete(l.Detail, brig.DetailCode) },
		func(l *audit.Line) { l.Prev = strings.Repeat("ab", 32) },
		func(l *audit.Line) { l.Hash = strings.Repeat("cd", 32) },
	}
	return map[string]tampering{
		"field": func(r *rand.Rand, rows []string) ([]string, int) {
			i := r.IntN(len(rows))
			rows[i] = change(rows[i], flips[r.IntN(len(flips))], false)
			return rows, i + 1
		},
		"field and its hash": func(r *rand.Rand, rows []string) ([]string, int) {
			i := r.IntN(len(rows))
			rows[i] = change(rows[i], flips[2+r.IntN(3)], true)
			return rows, i + 1
		},
		"bit": func(r *rand.Rand, rows []string) ([]string, int) {
			i := r.IntN(len(rows))
			b := []byte(rows[i])
			b[r.IntN(len(b)-1)] ^= 1 << r.IntN(7)
			rows[i] = string(b)
			return rows, i + 1
		},
		"remove": func(r *rand.Rand, rows []string) ([]string, int) {
			i := r.IntN(len(rows))
			return slices.Delete(rows, i, min(len(rows), i+1+r.IntN(3))), i + 1
		},
		"swap": func(r *rand.Rand, rows []string) ([]string, int) {
			i, j := r.IntN(len(rows)), r.IntN(len(rows))
			if i == j {
				return rows, 0
			}
			rows[i], rows[j] = rows[j], rows[i]
			return rows, min(i, j) + 1
		},
		"move": func(r *rand.Rand, rows []string) ([]string, int) {
			i, j := r.IntN(len(rows)), r.IntN(len(rows))
			if i == j {
				return rows, 0
			}
			row := rows[i]
			return slices.Insert(slices.Delete(rows, i, i+1), j, row), min(i, j) + 1
		},
		"duplicate": func(r *rand.Rand, rows []string) ([]string, int) {
			i, j := r.IntN(len(rows)), r.IntN(len(rows)+1)
			at := j + 1
			if j == i { // the copy equals the record, so the second one is invalid
				at = i + 2
			}
			return slices.Insert(rows, j, rows[i]), at
		},
		"insert": func(r *rand.Rand, rows []string) ([]string, int) {
			i := r.IntN(len(rows) + 1)
			var l brig.AuditLine
			if i > 0 {
				var form audit.Line
				if err := json.Unmarshal([]byte(rows[i-1]), &form); err != nil {
					t.Fatal(err)
				}
				l, _ = form.Domain()
			}
			// A line with a valid hash and a valid position.
			forged := audit.NewLine(l, brig.Event{At: time.Unix(int64(i), 0), Op: "forged", Tenant: "acme", Detail: map[string]string{"x": "y"}})
			return slices.Insert(rows, i, change("{}", func(to *audit.Line) { *to = audit.FromLine(forged) }, false)), i + 1
		},
	}
}

// TestTamperingIsDetected checks that the verification detects ten thousand
// modifications, and that the error names the first invalid record.
func TestTamperingIsDetected(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	lines := newChain(20)
	whole := export(t, lines, headOf(lines), brig.AuditQuery{}, 1)
	if rep, err := verify(whole); err != nil || rep.Lines != 20 || rep.Partial {
		t.Fatalf("what nobody touched: %+v, %v", rep, err)
	}
	// The control: a chain that is forged from the first record on is valid,
	// and only the signature of its head reveals the forgery.
	forged := []brig.AuditLine{}
	for i, l := range lines {
		var last brig.AuditLine
		if i > 0 {
			last = forged[i-1]
		}
		l.Actor = "bob"
		forged = append(forged, audit.NewLine(last, l.Event))
	}
	anew := export(t, forged, headOf(forged), brig.AuditQuery{}, 1)
	_, err := verify(anew)
	key, _, err2 := ed25519.GenerateKey(nil)
	_, kept := audit.VerifyExport(strings.NewReader(strings.Join(anew, "")), key)
	attack.RecordMutant("AUD-01", "a chain made anew", "the signature of its end", err == nil && kept != nil)
	if err = errors.Join(err, err2); err != nil || kept == nil {
		t.Errorf("a chain made anew: %v, and with a key that signs it: %v", err, kept)
	}
	all := tamperings(t)
	per := 10_000/len(all) + 1
	for name, f := range all {
		t.Run(name, func(t *testing.T) {
			attack.Case(t, "AUD-01", name)
			for range per {
				rows, want := f(r, slices.Clone(whole[1:len(whole)-1]))
				got := slices.Concat(whole[:1], rows, whole[len(whole)-1:])
				_, err := verify(got)
				if want == 0 {
					continue
				}
				invalid, ok := errors.AsType[*audit.InvalidRecord](err)
				if !ok {
					t.Fatalf("not found (record %d): %v\n%s", want, err, strings.Join(got, ""))
				}
				if invalid.Position != want || invalid.Seq != int64(want) {
					t.Fatalf("%v, at %d; want record %d\n%s", invalid, invalid.Position, want, strings.Join(got, ""))
				}
			}
		})
	}
}

// TestPrunedLogRequiresPruneRecord checks that a log without its first record is valid
// only if a later record has the number and the hash of the last pruned record.
// Both must match.
func TestPrunedLogRequiresPruneRecord(t *testing.T) {
	const cut = 5
	whole := newChain(10)
	last := whole[cut-1]
	for name, c := range map[string]struct {
		upTo, hash string
		ok         bool
	}{
		"both":          {"5", fmt.Sprintf("%x", last.Hash), true},
		"another place": {"4", fmt.Sprintf("%x", last.Hash), false},
		"another hash":  {"5", fmt.Sprintf("%x", whole[0].Hash), false},
		"not a number":  {"x", fmt.Sprintf("%x", last.Hash), false},
	} {
		t.Run(name, func(t *testing.T) {
			lines := slices.Clone(whole[cut:])
			lines = append(lines, audit.NewLine(lines[len(lines)-1], brig.Event{
				At: time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC), Op: brig.PrunedOp, Tenant: "acme",
				Detail: map[string]string{brig.DetailPruned: c.upTo, brig.DetailPrunedHash: c.hash},
			}))
			_, err := verify(export(t, lines, headOf(lines), brig.AuditQuery{}, cut+1))
			if (err == nil) != c.ok {
				t.Errorf("%v, want ok %v", err, c.ok)
			}
		})
	}
}

// TestEmptyExportIsValid checks that an export without matching records has the head
// of the tenant's log, and is valid.
func TestEmptyExportIsValid(t *testing.T) {
	head := headOf(newChain(3))
	for name, c := range map[string]struct {
		lines []brig.AuditLine
		q     brig.AuditQuery
		head  brig.AuditHead
		ok    bool
	}{
		"no record fits":              {nil, brig.AuditQuery{Sandbox: "none"}, head, true},
		"one fits":                    {newChain(3)[1:2], brig.AuditQuery{Sandbox: "sb0"}, head, true},
		"the head of another tenant":  {newChain(3)[1:2], brig.AuditQuery{Sandbox: "sb0"}, brig.AuditHead{Tenant: "rival", Seq: head.Seq, Hash: head.Hash, At: head.At}, false},
		"all records of the whole":    {newChain(3), brig.AuditQuery{}, head, true},
		"no records of what is whole": {nil, brig.AuditQuery{}, head, false},
	} {
		rep, err := verify(export(t, c.lines, c.head, c.q, 1))
		if (err == nil) != c.ok || c.ok && (rep.Tenant != "acme" || rep.Lines != len(c.lines)) {
			t.Errorf("%s: %+v, %v, want ok %v", name, rep, err, c.ok)
		}
	}
}
