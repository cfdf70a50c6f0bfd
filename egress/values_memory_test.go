package egress

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// longKey returns a secret whose value has the maximum length.
func longKey(i int, places ...brig.SecretPlace) Secret {
	k := key(places...)
	k.Name, k.Placeholder = fmt.Sprintf("long%d", i), fmt.Sprintf("brig-secret-%02d3456789", i)
	k.Value = func(context.Context) ([]byte, error) {
		return []byte(fmt.Sprintf("%02d", i) + strings.Repeat("v", brig.MaxBrokered-2)), nil
	}
	return k
}

// A placeholder that is repeated inserts a long value each time. The header of
// a request still does not exceed the limit, and a body is generated while it
// is sent. The control generates the body as a whole.
func TestRepeatedValuesAreLimited(t *testing.T) {
	const repeated = 1400 // placeholders per request
	var got int64
	l := newLab(t, true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = io.Copy(io.Discard, r.Body) }))
	k := longKey(0, brig.SecretHeader, brig.SecretQuery, brig.SecretBody)
	l.keys = []Secret{k}
	many := strings.Repeat(k.Placeholder, repeated)

	basicOf := l.request("GET", "/", nil)
	basicOf.SetBasicAuth("u", many)
	header := l.request("GET", "/", nil)
	header.Header.Set("X-Large", many)
	spread := l.request("GET", "/", nil)
	for i := range 20 {
		spread.Header.Set(fmt.Sprint("X-", i), k.Placeholder)
	}
	for name, r := range map[string]*http.Request{
		"a field": header, "fields": spread, "basic credentials": basicOf, "a query": l.request("GET", "/?q="+many, nil),
		"a query, escaped": l.request("GET", "/?q="+strings.ReplaceAll(many, "-", "%2D"), nil),
	} {
		if res, text := l.do(l.client(false), r); res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
	}
	few := l.request("GET", "/?q="+k.Placeholder, nil)
	few.Header.Set("X-Key", k.Placeholder)
	if res, text := l.do(l.client(false), few); res.StatusCode != http.StatusOK {
		t.Errorf("one of each: %d %s", res.StatusCode, text)
	}

	allocated := func(f func()) int64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	const want = repeated * int64(brig.MaxBrokered)
	for name, body := range map[string]io.Reader{"whole": strings.NewReader(many), "a stream": struct{ io.Reader }{strings.NewReader(many)}} {
		if res, text := l.do(l.client(false), l.request("POST", "/", body)); res.StatusCode != http.StatusOK || got != want {
			t.Errorf("%s: %d %s, %d bytes, want %d", name, res.StatusCode, text, got, want)
		}
	}
	value, _ := k.Value(t.Context())
	s := newSwaps([]swap{{old: []byte(k.Placeholder), new: value}})
	if n := allocated(func() { _, _ = io.Copy(io.Discard, s.newReader(strings.NewReader(many), nil)) }); n > swapCost {
		t.Errorf("in pieces it takes %d KiB, of which %d are charged", n>>10, swapCost>>10)
	}
	if n := allocated(func() { _ = s.replaceAll(many, nil) }); n < want {
		t.Errorf("control: as a whole it takes %d KiB", n>>10)
	}
}

// The memory of a search for values is charged once for all requests of a
// sandbox that use the same values, and released after them. It does not exceed
// its charge.
func TestScrubbersAreCharged(t *testing.T) {
	var many []boundSecret // short ones of different lengths, and long ones
	for i := range 50 {
		many = append(many, boundSecret{longKey(i), []byte(fmt.Sprintf("%02d", i) + strings.Repeat("v", 10+i))})
	}
	var long []boundSecret
	for i := range maxValues / brig.MaxBrokered {
		value, _ := longKey(i).Value(t.Context())
		long = append(long, boundSecret{longKey(i), value})
	}
	for name, grants := range map[string][]boundSecret{"many": many, "long": long, "one": many[:1]} {
		t.Run(name, func(t *testing.T) {
			b, g := newBudget(DefaultMemory), &sentValues{}
			before := usedMemory()
			first := g.acquireScrubber(b, grants)
			if first == nil || b.used == 0 {
				t.Fatal("it is not charged")
			}
			n := usedMemory() - before
			t.Logf("%d KiB are taken, %d KiB charged", n>>10, b.used>>10)
			if n > b.used+64<<10 {
				t.Errorf("%d KiB are taken, %d KiB charged", n>>10, b.used>>10)
			}
			used := b.used
			// Further users take no additional memory: the control created a
			// scrubber for each.
			var all []*sharedScrubber
			for range 512 {
				all = append(all, g.acquireScrubber(b, grants))
			}
			if more := usedMemory() - before - n; b.used != used || more > 1<<20 {
				t.Errorf("512 more take %d KiB, of which %d are charged", more>>10, (b.used-used)>>10)
			}
			apart := newScrubber(grants, nil)
			if alone := usedMemory() - before - n; len(grants) > 1 && alone < n/2 {
				t.Errorf("control: one of its own takes %d KiB", alone>>10)
			}
			runtime.KeepAlive(apart)
			for _, s := range append(all, first) {
				g.releaseScrubber(b, s)
			}
			other := g.acquireScrubber(b, many[1:2])
			g.releaseScrubber(b, other)
			if len(g.scrubbers) != 1 || g.idle != other || b.used != other.cost {
				t.Errorf("%d are kept, %d KiB charged", len(g.scrubbers), b.used>>10)
			}
		})
	}
	b, g := newBudget(DefaultMemory), &sentValues{}
	var held []*sharedScrubber
	for i := range 50 { // hosts with different values
		if s := g.acquireScrubber(b, many[i:i+1]); s != nil {
			held = append(held, s)
		}
		if s := g.acquireScrubber(b, append(long[:7:7], many[i])); s != nil {
			held = append(held, s)
		}
	}
	if b.used > b.limit || len(held) == 100 {
		t.Errorf("%d scrubbers, %d KiB", len(held), b.used>>10)
	}
}

// Values whose total length exceeds the limit of a host are not sent.
func TestTotalValueSizeIsLimited(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i := range maxValues/brig.MaxBrokered + 1 {
		if res, text := l.get("/"); res.StatusCode != http.StatusOK {
			t.Fatalf("with %d values: %d %s", i, res.StatusCode, text)
		}
		l.keys = append(l.keys, longKey(i))
	}
	if res, text := l.get("/"); res.StatusCode != http.StatusBadGateway || l.dials.Load() == 0 {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// A search is also charged if it only looks for a value that was sent earlier.
func TestEarlierValuesAreCharged(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	n := &inspection{inspector: l.inspector, host: labHost, port: 443}
	if n.searchesResponses(nil) {
		t.Error("control: without values answers are searched")
	}
	l.valuesSent.add([]boundSecret{{key(), []byte(value)}})
	if !n.searchesResponses(nil) {
		t.Error("the value that was sent is not looked for")
	}
}

// searchedTexts returns texts that take as much memory as possible to search: text
// that matches nested values at each byte, and text that consists of escapes.
func searchedTexts() map[string]string {
	const length = 63 << 10
	fill := func(s string) string { return strings.Repeat(s, length/len(s)) }
	return map[string]string{
		"matches": fill("a"), "matches and escapes": fill(strings.Repeat("a", 200) + `\u0061%61=61&#97;`),
		"backslashes": fill(`\"`), "backslashes and letters": fill(`\"a`), "escapes": fill("%41"), "blanks": fill("a "),
		"all": fill(`\"a %41=41&#9;-b`),
	}
}

// A search uses no more memory than is charged for it, regardless of its matches. Text that matches
// at each byte is searched as reliably as other text. The control stores every match.
func TestSearchesAreCharged(t *testing.T) {
	testenv.SkipWithRace(t, "it measures memory")
	nested := make([]boundSecret, 50) // each is contained in the next
	for i := range nested {
		nested[i] = boundSecret{longKey(i), []byte(strings.Repeat("a", 8+i))}
	}
	value, _ := longKey(0).Value(t.Context())
	for name, grants := range map[string][]boundSecret{"nested": nested, "long": {{longKey(0), value}}, "one": {{key(), []byte("sk-live-51HqLyjWDarjtT1zdp7dcXYZ")}}} {
		s := newScrubber(grants, nil)
		for kind, text := range searchedTexts() {
			const searches = 2
			if name == "nested" && !strings.HasPrefix(kind, "matches") {
				continue // 50 lengths of values take long, and no more memory than one
			}
			readers := make([]*blindReader, searches)
			before := usedMemory()
			for i := range readers {
				readers[i] = s.values.newReader(strings.NewReader(text), nil)
				for len(readers[i].held) < len(text) && readers[i].ended == nil {
					readers[i].readOnce(holdReadSize)
				}
			}
			each, charged := (usedMemory()-before)/searches, searchCost+s.scanCost()
			t.Logf("%s, %s: %d KiB each, %d KiB charged, %d matches wait", name, kind, each>>10, charged>>10, len(readers[0].scan.hits))
			if each > charged {
				t.Errorf("%s, %s: %d KiB each, %d KiB charged", name, kind, each>>10, charged>>10)
			}
			runtime.KeepAlive(readers)
		}
	}
	all := 0 // the matches of the nested values, of which each begins where its last one ended
	for _, g := range nested {
		all += 63 << 10 / len(g.value)
	}
	if all < 50*maxHits {
		t.Errorf("control: there are only %d matches", all)
	}
}

// A body in which values occur more often than the limit is rejected, and such a header field is
// masked. Overlapping matches do not count.
func TestTooManyMatchesAreRejected(t *testing.T) {
	s := newScrubber([]boundSecret{{key(), []byte("tok:tok:")}, {key(), []byte("aaaaaaaa")}, {key(), []byte("aaaaaaaaa")}}, nil).values
	for text, reject := range map[string]bool{
		strings.Repeat("tok:tok:", maxHits-1): false, strings.Repeat("tok:tok:", maxHits+1): true,
		strings.Repeat("a", 32<<10): true, strings.Repeat("aaaaaaaaaa", 90) + "aaaaa": false,
	} {
		got, err := io.ReadAll(s.newReader(strings.NewReader("<"+text+">"), nil))
		if (err != nil) != reject || strings.Contains(string(got), "tok:tok:") || strings.Contains(string(got), "aaaaaaaa") {
			t.Errorf("%d of %.10s: %.40q, %v", len(text), text, got, err)
		}
		if masked := s.newScan().replaceAll(text); strings.Contains(masked, "tok:tok:") || reject && strings.Trim(masked, "x") != "" {
			t.Errorf("%d of %.10s in a header: %.40q", len(text), text, masked)
		}
	}
}

// Bytes that values add to the header, the query and the body of a request are counted as sent by
// the sandbox, and limited like the rest. As a control, the lab counts the bytes that the host
// receives.
func TestGrowthIsCounted(t *testing.T) {
	var got int64
	l := newLab(t, true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, _ = io.Copy(io.Discard, r.Body)
		got += int64(len(r.Header.Get("X-Key")) + len(r.URL.RawQuery))
	}))
	var grown atomic.Int64
	l.countGrown = func(n int64) error {
		grown.Add(n)
		return nil
	}
	k := longKey(0, brig.SecretHeader, brig.SecretQuery, brig.SecretBody)
	l.keys = []Secret{k}
	many := strings.Repeat(k.Placeholder+" ", 1400)
	for name, body := range map[string]io.Reader{"whole": strings.NewReader(many), "a stream": struct{ io.Reader }{strings.NewReader(many)}, "none": strings.NewReader("")} {
		grown.Store(0)
		r := l.request("POST", "/?q="+k.Placeholder, body)
		r.Header.Set("X-Key", k.Placeholder)
		length := int64(len(many))
		if name == "none" {
			length = 0
		}
		if res, text := l.do(l.client(false), r); res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", name, res.StatusCode, text)
		}
		sent := length + int64(len(r.Header.Get("X-Key"))+len(r.URL.RawQuery))
		if n := grown.Load(); n != got-sent || n < int64(brig.MaxBrokered) {
			t.Errorf("%s: the host receives %d bytes for %d, and %d are counted", name, got, sent, n)
		}
	}
	w := newWorld(t, allowHosts("*.test"), func(o *Options) { o.Rules.Bandwidth = 1 << 30 })
	if sent, _ := w.Usage(); sent != 0 {
		t.Errorf("%d bytes before", sent)
	}
	if err := w.countGrowth(300 << 10); err != nil {
		t.Error(err)
	}
	if sent, _ := w.Usage(); sent != 300<<10 {
		t.Errorf("%d bytes are counted", sent)
	}
	if remaining := w.policy.Load().up.Tokens(); remaining > 1<<30/10-200<<10 {
		t.Errorf("%f bytes of the bandwidth are left", remaining)
	}
	w.Close()
	if err := w.countGrowth(1 << 30); err == nil {
		t.Error("growth is sent without bandwidth")
	}
}

// Searching many short fields takes little more memory than searching one long field. The control
// uses a separate scan for each field.
func TestManyFieldsShareScan(t *testing.T) {
	var grants []boundSecret
	for i := range 50 {
		grants = append(grants, boundSecret{longKey(i), []byte(fmt.Sprintf("%02d", i) + strings.Repeat("v", 10+i))})
	}
	x := &exchange{scrub: newScrubber(grants, nil)}
	fields := func() http.Header {
		h := http.Header{}
		for i := range 1000 {
			h[fmt.Sprint("X-", i)] = []string{"v"}
		}
		return h
	}
	allocated := func(f func(http.Header)) int64 {
		h := fields()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f(h)
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	if n := allocated(x.scrubHeader); n > 2<<20 {
		t.Errorf("%d KiB are allocated", n>>10)
	}
	if n := allocated(func(h http.Header) {
		for _, v := range h {
			v[0] = x.scrub.values.newScan().replaceAll(v[0])
		}
	}); n < 8<<20 {
		t.Errorf("control: %d KiB are allocated", n>>10)
	}
	h := http.Header{"X-A": {"v"}, "X-B": {"<" + string(grants[3].value) + ">"}, "X-C": {string(grants[3].value)}, "X-D": {"v"}}
	if x.scrubHeader(h); h.Get("X-B") != "<"+grants[3].Placeholder+">" || h.Get("X-C") != grants[3].Placeholder || h.Get("X-D") != "v" {
		t.Errorf("%v", h)
	}
}
