package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig/webhook"
)

// eventReceiver records the events that it gets as "type sandboxID".
type eventReceiver struct {
	mu     sync.Mutex
	events []string
	ids    map[string]int // deliveries by event
	broken bool           // responds with an error
}

const eventSecret = "a secret for signatures"

func (r *eventReceiver) ServeHTTP(w http.ResponseWriter, rq *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := io.ReadAll(rq.Body)
	var p struct {
		ID, Type  string
		SandboxID string `json:"sandbox_id"`
		Data      struct {
			Metadata map[string]string `json:"sandbox_metadata"`
		} `json:"event_data"`
	}
	if err != nil || json.Unmarshal(b, &p) != nil || rq.Header.Get(webhook.E2BSignature) != webhook.SignE2B(eventSecret, b) || p.Data.Metadata["team"] != "red" {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	if r.broken {
		http.Error(w, "broken", http.StatusServiceUnavailable)
		return
	}
	if r.ids[p.ID]++; r.ids[p.ID] == 1 {
		r.events = append(r.events, strings.TrimPrefix(p.Type, "sandbox.lifecycle.")+" "+p.SandboxID)
	}
}

func (r *eventReceiver) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func (r *eventReceiver) setBroken(broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = broken
}

// TestE2BEvents lists lifecycle events, and receives them by webhook, over E2B's API. The server is
// killed while the receiver fails, and a sandbox ends before the next server runs.
//
//suite:part clients
func TestE2BEvents(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	config := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(config, []byte("webhooks: {private: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, dir, "--config", config)
	key, err := os.ReadFile(filepath.Join(dir, "e2b.key"))
	if err != nil {
		t.Fatal(err)
	}
	call := func(method, path string, body, out any) int {
		t.Helper()
		var in io.Reader
		if body != nil {
			b, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			in = bytes.NewReader(b)
		}
		rq, err := http.NewRequestWithContext(t.Context(), method, s.url+path, in)
		if err != nil {
			t.Fatal(err)
		}
		rq.Header.Set("X-Api-Key", strings.TrimSpace(string(key)))
		resp, err := http.DefaultClient.Do(rq)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if out != nil {
			if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
				t.Fatalf("%s %s: %d, %v", method, path, resp.StatusCode, err)
			}
		}
		return resp.StatusCode
	}
	receiver := &eventReceiver{ids: map[string]int{}}
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	type object = map[string]any
	var hook object
	status := call(http.MethodPost, "/events/webhooks", object{
		"name": "hook", "url": server.URL, "enabled": true, "signatureSecret": eventSecret,
		"events": []string{"sandbox.lifecycle.created", "sandbox.lifecycle.paused", "sandbox.lifecycle.resumed", "sandbox.lifecycle.killed", "sandbox.lifecycle.updated"},
	}, &hook)
	if status != http.StatusCreated || hook["id"] == "" || hook["signatureSecret"] != nil {
		t.Fatalf("webhook: %d, %v", status, hook)
	}
	create := func(timeout int) string {
		t.Helper()
		var box struct{ SandboxID string }
		if status := call(http.MethodPost, "/v2/sandboxes", object{"templateID": "base", "timeout": timeout, "metadata": object{"team": "red"}}, &box); status != http.StatusCreated {
			t.Fatalf("create: %d", status)
		}
		return box.SandboxID
	}
	one := create(300)
	for path, body := range map[string]any{"/timeout": object{"timeout": 200}} {
		if status := call(http.MethodPost, "/sandboxes/"+one+path, body, nil); status != http.StatusNoContent {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status := call(http.MethodPost, "/sandboxes/"+one+"/pause", nil, nil); status != http.StatusNoContent {
		t.Errorf("pause: %d", status)
	}
	if status := call(http.MethodPost, "/sandboxes/"+one+"/connect", object{"timeout": 300}, nil); status != http.StatusCreated {
		t.Errorf("connect: %d", status)
	}
	await := func(want ...string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !slices.Equal(receiver.list(), want); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("received %q, want %q", receiver.list(), want)
			}
		}
	}
	first := []string{"created " + one, "updated " + one, "paused " + one, "resumed " + one, "updated " + one}
	await(first...)

	receiver.setBroken(true)
	two := create(2) // its lease ends without a server
	if status := call(http.MethodDelete, "/sandboxes/"+one, nil, nil); status != http.StatusNoContent {
		t.Errorf("kill: %d", status)
	}
	s.kill()
	time.Sleep(2500 * time.Millisecond)
	receiver.setBroken(false)
	s = startServer(t, dir, "--config", config)
	await(append(first, "created "+two, "killed "+one, "killed "+two)...)

	var events []struct{ ID, Type, SandboxID string }
	if status := call(http.MethodGet, "/events/sandboxes?limit=100&orderAsc=true", nil, &events); status != http.StatusOK {
		t.Fatalf("events: %d", status)
	}
	var listed []string
	for _, e := range events {
		listed = append(listed, strings.TrimPrefix(e.Type, "sandbox.lifecycle.")+" "+e.SandboxID)
		if receiver.ids[e.ID] == 0 {
			t.Errorf("the event %+v has another ID than its delivery", e)
		}
	}
	if !slices.Equal(listed, receiver.list()) {
		t.Errorf("listed %q", listed)
	}
	if status := call(http.MethodGet, fmt.Sprintf("/events/sandboxes/%s?types=sandbox.lifecycle.killed", two), nil, &events); status != http.StatusOK || len(events) != 1 || events[0].SandboxID != two {
		t.Errorf("the end of %s: %d, %+v", two, status, events)
	}
	path := "/events/webhooks/" + hook["id"].(string)
	if status := call(http.MethodPatch, path, object{"enabled": false}, &hook); status != http.StatusOK || hook["enabled"] != false || hook["name"] != "hook" {
		t.Errorf("change: %d, %v", status, hook)
	}
	if status := call(http.MethodDelete, path, nil, nil); status != http.StatusNoContent {
		t.Errorf("remove: %d", status)
	}
	if status := call(http.MethodGet, path, nil, nil); status != http.StatusNotFound {
		t.Errorf("a removed webhook: %d", status)
	}
	for _, bad := range []object{{}, {"name": "x", "url": server.URL, "signatureSecret": eventSecret, "events": []string{"none"}}} {
		if status := call(http.MethodPost, "/events/webhooks", bad, nil); status != http.StatusBadRequest {
			t.Errorf("%v: %d", bad, status)
		}
	}
}
