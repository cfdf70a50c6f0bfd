package e2b_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
	"github.com/brig-run/brig/internal/testenv"
)

// timedLines returns a log of n empty lines.
func timedLines(n int) io.Reader {
	return strings.NewReader(strings.Repeat(brig.LogTime(epoch)+"\n", n))
}

// TestLogsUseLittleMemory verifies that the memory for reading a part of a log does not depend
// on the length of the log. A program can print a line for each byte.
func TestLogsUseLittleMemory(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	const lines, most = 400_000, 48 << 20
	s.log = func() io.Reader { return timedLines(lines) }
	for _, path := range []string{"/sandboxes/sb1/logs?limit=1", "/v2/sandboxes/sb1/logs?limit=1", "/v2/sandboxes/sb1/logs?limit=1&direction=backward"} {
		n := testenv.HeapGrowth(func() {
			if resp, body := doRequest(t, http.MethodGet, srv.URL+path, ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"level"`) {
				t.Errorf("%s: %d %.200s", path, resp.StatusCode, body)
			}
		})
		if n > most {
			t.Errorf("%s: %d MiB", path, n>>20)
		}
	}
	control := testenv.HeapGrowth(func() {
		text, _ := io.ReadAll(timedLines(lines))
		var all []map[string]string
		for line := range strings.Lines(string(text)) {
			all = append(all, map[string]string{"message": line})
		}
		if len(all) != lines {
			t.Errorf("%d lines", len(all))
		}
	})
	if control < most {
		t.Errorf("the control takes %d MiB", control>>20)
	}
}

// TestLogParts verifies that parts of a log match the whole log.
func TestLogParts(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	var text strings.Builder
	var at []int64 // in milliseconds
	for i := range 20 {
		when := epoch.Add(time.Duration(i)*time.Minute).AddDate(100, 0, 0)
		fmt.Fprintf(&text, "%sline %d\n", brig.LogTime(when), i)
		at = append(at, when.UnixMilli())
	}
	text.WriteString(brig.LogTime(epoch.AddDate(1, 0, 0)) + "WARN the end")
	s.log = func() io.Reader { return strings.NewReader(text.String()) }
	for query, want := range map[string][]string{
		"limit=2":                                {"line 0", "line 1"},
		"limit=0":                                {},
		"limit=2&direction=backward":             {"WARN the end", "line 19"},
		"search=line&limit=3&direction=backward": {"line 19", "line 18", "line 17"},
		fmt.Sprintf("cursor=%d&limit=2", at[5]):  {"line 5", "line 6"},
		fmt.Sprintf("cursor=%d&direction=backward&limit=2", at[5]): {"line 5", "line 4"},
		fmt.Sprintf("cursor=%d", at[18]):                           {"line 18", "line 19", "WARN the end"},
		"level=error":                                              {},
		"level=warn":                                               {"WARN the end"},
		"level=info&limit=1&direction=backward":                    {"WARN the end"},
		"level=debug&limit=1":                                      {"line 0"},
		"level=warn&search=line":                                   {},
		"search=Line":                                              {},
	} {
		resp, body := doRequest(t, http.MethodGet, srv.URL+"/v2/sandboxes/sb1/logs?"+query, "")
		var out struct{ Logs []struct{ Message string } }
		if err := json.Unmarshal([]byte(body), &out); err != nil || resp.StatusCode != http.StatusOK || out.Logs == nil {
			t.Fatalf("%s: %d %s", query, resp.StatusCode, body)
		}
		got := []string{}
		for _, l := range out.Logs {
			got = append(got, l.Message)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// TestLevels verifies the levels of lines.
func TestLevels(t *testing.T) {
	for line, want := range map[string]string{
		"plain":                             "info",
		"":                                  "info",
		`{"level":"error","msg":"x"}`:       "error",
		`{"level":"WARNING"}`:               "warn",
		`{"severity":"CRITICAL"}`:           "error",
		`{"level":20,"msg":"x"}`:            "debug",
		`{"level":40}`:                      "warn",
		`{"level":50}`:                      "error",
		`{"level":"loud"}`:                  "info",
		`{"level":`:                         "info",
		`{"msg":"level=error"}`:             "info",
		"time=2026 level=warn msg=x":        "warn",
		`level="error" x`:                   "error",
		"ERROR: it failed":                  "error",
		"WARNING:root:careful":              "warn",
		"[DEBUG] x":                         "debug",
		"2026-01-02 03:04:05,123 ERROR x":   "error",
		"2026-01-02T03:04:05Z [WARN] x":     "warn",
		"error in a sentence":               "info",
		"HTTP ERROR 404":                    "info",
		"\x1b[0m":                           "info",
		"INFO " + strings.Repeat("x", 9999): "info",
	} {
		if got := e2b.LevelOf(line); got != want {
			t.Errorf("%.80q: %s, want %s", line, got, want)
		}
	}
}
