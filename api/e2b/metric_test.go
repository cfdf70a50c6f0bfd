package e2b_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
	"github.com/brig-run/brig/observe/history"
)

// TestMetricsOutlastSandbox verifies that the metrics of a paused and of an ended sandbox can be
// read, but only by the sandbox's tenant.
func TestMetricsOutlastSandbox(t *testing.T) {
	samples := []e2b.Metric{{At: epoch, CPUs: 1}, {At: epoch.Add(5 * time.Second), CPUs: 1}}
	s, _, srv := serve(t, func(o *e2b.Options) {
		o.Metrics = func(context.Context, string) ([]e2b.Metric, error) { return samples, nil }
		o.EndedMetrics = func(id string) (string, []e2b.Metric) {
			if id != "sb1" {
				return "", nil
			}
			return "acme", samples
		}
	})
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	read := func(id, query string, headers ...string) (int, int) {
		t.Helper()
		resp, body := doRequest(t, http.MethodGet, srv.URL+"/sandboxes/"+id+"/metrics"+query, "", headers...)
		var out []map[string]any
		if resp.StatusCode == http.StatusOK {
			if err := json.Unmarshal([]byte(body), &out); err != nil {
				t.Fatal(err)
			}
		}
		return resp.StatusCode, len(out)
	}
	for _, state := range []brig.State{brig.Running, brig.Paused, brig.Ended} {
		s.mu.Lock()
		s.boxes[0].State = state
		s.mu.Unlock()
		end := fmt.Sprint(epoch.Unix() + 60)
		if code, n := read("sb1", "?end="+end); code != http.StatusOK || n != 2 {
			t.Errorf("%s: %d with %d samples", state, code, n)
		}
		if code, n := read("sb1", fmt.Sprintf("?start=%d&end=%s", epoch.Unix()+1, end)); code != http.StatusOK || n != 1 {
			t.Errorf("%s: %d with %d samples", state, code, n)
		}
		if code, _ := read("sb1", "?start="+end+"&end=1"); code != http.StatusBadRequest {
			t.Errorf("%s: a start after the end: %d", state, code)
		}
		if code, _ := read("sb1", "", "X-API-KEY", otherKey); code != http.StatusNotFound {
			t.Errorf("%s: another tenant: %d", state, code)
		}
	}
	if code, _ := read("sb2", ""); code != http.StatusNotFound {
		t.Errorf("a sandbox that never existed: %d", code)
	}
}

// TestTeamMetrics verifies the numbers of a team's sandboxes over time.
func TestTeamMetrics(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var started int
	_, _, srv := serve(t, func(o *e2b.Options) {
		o.TeamMetrics = func(tenant string) []history.Tally {
			if tenant != "acme" {
				return nil
			}
			return []history.Tally{
				{At: now.Add(-8 * 24 * time.Hour), Concurrent: 100, StartRate: 9, MaxStartRate: 9},
				{At: now.Add(-time.Hour), Concurrent: 3, StartRate: 0.5, MaxStartRate: 2},
				{At: now.Add(-time.Minute), Concurrent: 4, StartRate: 1, MaxStartRate: 1},
			}
		}
		o.Started = func(tenant string, n int) {
			if tenant == "acme" {
				started += n
			}
		}
	})
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	if started != 1 {
		t.Errorf("%d started sandboxes", started)
	}
	type metric struct {
		TimestampUnix       int64
		ConcurrentSandboxes int
		SandboxStartRate    float64
		Value               float64
	}
	read := func(path string, out any) int {
		t.Helper()
		resp, body := doRequest(t, http.MethodGet, srv.URL+path, "")
		if resp.StatusCode == http.StatusOK {
			if err := json.Unmarshal([]byte(body), out); err != nil {
				t.Fatal(err)
			}
		}
		return resp.StatusCode
	}
	var all []metric
	if code := read("/teams/acme/metrics", &all); code != http.StatusOK || len(all) != 2 || all[0].ConcurrentSandboxes != 3 || all[1].SandboxStartRate != 1 {
		t.Errorf("%d: %+v", code, all)
	}
	if code := read(fmt.Sprintf("/teams/acme/metrics?start=%d", now.Add(-9*24*time.Hour).Unix()), &all); code != http.StatusOK || len(all) != 3 {
		t.Errorf("%d: %+v", code, all)
	}
	for query, want := range map[string]metric{
		"metric=concurrent_sandboxes":             {TimestampUnix: now.Add(-time.Minute).Unix(), Value: 4},
		"metric=sandbox_start_rate":               {TimestampUnix: now.Add(-time.Hour).Unix(), Value: 2},
		"metric=sandbox_start_rate&start=1&end=2": {TimestampUnix: 2},
	} {
		var got metric
		if code := read("/teams/acme/metrics/max?"+query, &got); code != http.StatusOK || got != want {
			t.Errorf("%s: %d %+v, want %+v", query, code, got, want)
		}
	}
	for path, want := range map[string]int{
		"/teams/acme/metrics/max":                 http.StatusBadRequest,
		"/teams/acme/metrics/max?metric=x":        http.StatusBadRequest,
		"/teams/acme/metrics?start=2&end=1":       http.StatusBadRequest,
		"/teams/poor/metrics":                     http.StatusForbidden,
		"/teams/poor/metrics/max?metric=whatever": http.StatusForbidden,
	} {
		if code := read(path, nil); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}
