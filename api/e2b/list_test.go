package e2b_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
	"github.com/brig-run/brig/api/httpapi"
)

// pages reads a list to its end and returns the ids of each page.
func pages(t *testing.T, base string, q url.Values) (out [][]string) {
	t.Helper()
	for range 100 {
		resp, body := doRequest(t, http.MethodGet, base+"/v2/sandboxes?"+q.Encode(), "")
		var page []struct{ SandboxID string }
		if err := json.Unmarshal([]byte(body), &page); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v: %d %s", q, resp.StatusCode, body)
		}
		ids := []string{}
		for _, s := range page {
			ids = append(ids, s.SandboxID)
		}
		out = append(out, ids)
		next, more := resp.Header["X-Next-Token"]
		if !more {
			return out
		}
		q.Set("nextToken", next[0])
	}
	t.Fatal("the list has no end")
	return nil
}

func TestListPages(t *testing.T) {
	s, _, srv := serve(t)
	s.add("acme", brig.Spec{Labels: map[string]string{"n": "1"}}) // not created by this API
	for i := range 20 {                                           // sb2 to sb21
		createSandbox(t, srv.URL, fmt.Sprintf(`{"templateID":"base","metadata":{"odd":"%t"}}`, i%2 == 1))
	}
	if resp, _ := doRequest(t, http.MethodPost, srv.URL+"/v2/sandboxes", `{"templateID":"base"}`, "X-API-KEY", otherKey); resp.StatusCode != http.StatusCreated {
		t.Fatal("of another tenant") // sb22
	}
	s.end("sb21")
	id := func(n int) string { return fmt.Sprintf("sb%d", n) }
	for _, c := range []struct {
		query string
		sizes []int
		first string
		last  string
	}{
		{"", []int{19}, id(20), id(2)},
		{"limit=19", []int{19}, id(20), id(2)},
		{"limit=18", []int{18, 1}, id(20), id(2)},
		{"limit=7&order=asc", []int{7, 7, 5}, id(2), id(20)},
		{"limit=1&startedAfter=2126-01-02T03:04:22Z", []int{1, 1, 1}, id(20), id(18)},
		{"metadata=odd%3Dtrue&limit=3", []int{3, 3, 3}, id(19), id(3)},
		{"metadata=odd%3Dtrue%26x%3Dy", []int{0}, "", ""},
	} {
		q, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		got := pages(t, srv.URL, q)
		var sizes []int
		var all []string
		for _, p := range got {
			sizes = append(sizes, len(p))
			all = append(all, p...)
		}
		if !slices.Equal(sizes, c.sizes) || len(all) > 0 && (all[0] != c.first || all[len(all)-1] != c.last) {
			t.Errorf("%s: pages of %v: %v", c.query, sizes, all)
		}
	}
	// A sandbox that ends between two pages does not remove another sandbox
	// from the list.
	q := url.Values{"limit": {"2"}}
	resp, _ := doRequest(t, http.MethodGet, srv.URL+"/v2/sandboxes?"+q.Encode(), "")
	if n := resp.Header.Get("X-Total-Running"); n != "19" {
		t.Errorf("%s run", n)
	}
	s.end("sb19")
	q.Set("nextToken", resp.Header.Get("X-Next-Token"))
	if got := pages(t, srv.URL, q); got[0][0] != "sb18" {
		t.Errorf("after sb20 and sb19: %v", got[0])
	}
	q.Set("order", "asc")
	if resp, _ := doRequest(t, http.MethodGet, srv.URL+"/v2/sandboxes?"+q.Encode(), ""); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a cursor of the other order: %d", resp.StatusCode)
	}
	for _, path := range []string{"/sandboxes/sb22", "/sandboxes/sb1", "/sandboxes/sb1/logs"} {
		if resp, _ := doRequest(t, http.MethodGet, srv.URL+path, ""); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if resp, _ := doRequest(t, http.MethodDelete, srv.URL+"/sandboxes/sb22", ""); resp.StatusCode != http.StatusNotFound {
		t.Error("another tenant's sandbox was removed")
	}
}

// The spec that the Service receives contains the options of the request.
func TestCreateSpec(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"code-interpreter-v1","timeout":90,"metadata":{"a":"b"},"envVars":{"A":"1"},"allow_internet_access":false}`)
	spec := s.lastSpec()
	if spec.Template != "code-interpreter-v1" || spec.Image != "" || spec.TTL != 90*time.Second || !spec.FixedLease || spec.Env["A"] != "1" || spec.Env["E2B_SANDBOX"] != "true" ||
		spec.Env["E2B_TEMPLATE_ID"] != "code-interpreter-v1" || spec.Labels["a"] != "b" || spec.Labels["brig.e2b/template"] != "code-interpreter-v1" {
		t.Errorf("%+v", spec)
	}
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	if ttl := s.lastSpec().TTL; ttl != 300*time.Second {
		t.Errorf("v2: %v", ttl)
	}
	doRequest(t, http.MethodPost, srv.URL+"/sandboxes", `{"templateID":"base"}`)
	if ttl := s.lastSpec().TTL; ttl != 15*time.Second {
		t.Errorf("v1: %v", ttl)
	}
}

// Neither connect nor refreshes shorten a lifetime, but timeout may.
func TestLeases(t *testing.T) {
	s, _, srv := serve(t)
	s.begin = time.Now()
	createSandbox(t, srv.URL, `{"templateID":"base","timeout":600}`)
	for _, c := range [][2]string{
		{"/v2/sandboxes/sb1/connect", `{"timeout":60}`}, {"/v2/sandboxes/sb1/connect", ``}, {"/sandboxes/sb1/refreshes", `{"duration":60}`},
		{"/sandboxes/sb1/connect", `{"timeout":3600}`}, {"/sandboxes/sb1/refreshes", `{"duration":1200}`}, {"/sandboxes/sb1/timeout", `{"timeout":1}`},
		{"/sandboxes/sb1/timeout", `{"timeout":-9223372036854775808}`},
	} {
		if resp, got := doRequest(t, http.MethodPost, srv.URL+c[0], c[1]); resp.StatusCode >= 300 {
			t.Errorf("%v: %d %s", c, resp.StatusCode, got)
		}
	}
	want := []string{"extend sb1 1h0m0s", "extend sb1 20m0s", "extend sb1 1s", "remove sb1"}
	if got := s.recordedCalls(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, c := range [][2]string{
		{"timeout", `{"timeout":86401}`}, {"timeout", `{}`}, {"connect", `{"timeout":-1}`}, {"connect", `{"timeout":999999}`}, {"refreshes", `{"duration":-1}`},
	} {
		createSandbox(t, srv.URL, `{"templateID":"base"}`)
		if resp, _ := doRequest(t, http.MethodPost, srv.URL+"/sandboxes/sb2/"+c[0], c[1]); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%v: %d", c, resp.StatusCode)
		}
	}
}

func TestMetrics(t *testing.T) {
	_, _, srv := serve(t, func(o *e2b.Options) {
		o.Metrics = func(context.Context, string) ([]e2b.Metric, error) {
			return []e2b.Metric{{At: epoch, CPUs: 1}, {At: epoch.Add(5 * time.Second), CPUs: 1, CPUPercent: 12.5, Memory: 1, MemoryTotal: 2, MemoryCache: 3, DiskUsed: 4, DiskTotal: 5}}, nil
		}
	})
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	const second = `{"timestamp":"2126-01-02T03:04:10Z","timestampUnix":4923082650,"cpuCount":1,"cpuUsedPct":12.5,"memUsed":1,"memTotal":2,"memCache":3,"diskUsed":4,"diskTotal":5}`
	at := fmt.Sprint(epoch.Unix() + 5)
	want := strings.Replace(second, "4923082650", at, 1)
	if _, got := doRequest(t, http.MethodGet, srv.URL+"/sandboxes/sb1/metrics?start="+at+"&end="+at, ""); got != "["+want+"]\n" {
		t.Errorf("got %s want %s", got, want)
	}
	if _, got := doRequest(t, http.MethodGet, srv.URL+"/sandboxes/metrics?sandbox_ids=sb1,sb7", ""); got != `{"sandboxes":{"sb1":`+want+"}}\n" {
		t.Errorf("got %s", got)
	}
	if resp, _ := doRequest(t, http.MethodGet, srv.URL+"/sandboxes/sb1/metrics?start=x", ""); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("start=x: %d", resp.StatusCode)
	}
}

// TestListsDropLargeFields verifies that a list, which reads all sandboxes, retains neither the
// environments nor the commands of the sandboxes, and does not modify the service's own copies.
func TestListsDropLargeFields(t *testing.T) {
	s, d, _ := serve(t)
	for range 20 { // several pages
		s.add("acme", brig.Spec{Env: map[string]string{"K": "V"}, Command: &brig.Command{Argv: []string{"x"}}, Labels: map[string]string{"n": "1"}})
	}
	ctx := brig.WithActor(t.Context(), brig.Actor{Tenant: "acme"})
	all, err := d.Scan(ctx, brig.ListOptions{})
	if err != nil || len(all) != 20 {
		t.Fatalf("%d sandboxes, %v", len(all), err)
	}
	for i, b := range all {
		if b.Spec.Env != nil || b.Spec.Command != nil || b.Spec.Labels["n"] != "1" {
			t.Errorf("%+v", b.Spec)
		}
		if of := s.boxes[i].Spec; of.Env["K"] != "V" || of.Command == nil {
			t.Errorf("the service's own has %+v", of)
		}
	}
}

// waitingLists is a stub whose List calls block.
type waitingLists struct {
	*stub
	waiting atomic.Int32
	leave   chan struct{}
}

func (w *waitingLists) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	w.waiting.Add(1)
	<-w.leave
	return w.stub.List(ctx, o)
}

// TestListsTakeTurns verifies that only a few lists of a key are built at the same time.
func TestListsTakeTurns(t *testing.T) {
	const requests = 20
	for _, at := range []string{"/sandboxes", "/v2/sandboxes", "/snapshots"} {
		synctest.Test(t, func(t *testing.T) {
			w := &waitingLists{stub: newStub(), leave: make(chan struct{})}
			h := httpapi.NewLimiter(httpapi.Limits{}).Handler(e2b.New(e2b.Options{Service: w, Keys: keys{}, Owner: w.owner, Seed: []byte("seed")}))
			var all sync.WaitGroup
			for range requests {
				all.Go(func() {
					r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+at, nil).WithContext(t.Context())
					r.Header.Set("X-API-KEY", key)
					got := httptest.NewRecorder()
					if h.ServeHTTP(got, r); got.Code != http.StatusOK {
						t.Errorf("%s: %d %s", at, got.Code, got.Body)
					}
				})
			}
			synctest.Wait()
			if n := w.waiting.Load(); n == 0 || n == requests {
				t.Errorf("%s: %d of %d lists are made at once", at, n, requests)
			}
			close(w.leave)
			all.Wait()
		})
	}
}
