package kernels_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/kernels"
)

// ask sends a request with a key, and returns the status and the kernel's id.
func ask(t *testing.T, method, url, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url+"?token="+key, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var k struct{ ID string }
	_ = json.NewDecoder(resp.Body).Decode(&k) // a list or an error has none
	return resp.StatusCode, k.ID
}

const ephemeral = `{"name":"python3-ephemeral"}`

// Who may not run code does nothing to the tenant's ephemeral kernels; who may
// look only looks.
func TestEphemeralKernelsAreGated(t *testing.T) {
	url, s, _ := serve(t)
	_, id := ask(t, "POST", url+"/api/kernels", key, ephemeral)
	one := url + "/api/kernels/" + id
	for k, a := range lesser {
		look := http.StatusForbidden
		if a.Role == brig.Viewer {
			look = http.StatusOK
		}
		for _, c := range []struct {
			method, url string
			want        int
		}{
			{"GET", url + "/api/kernels", look}, {"GET", one, look},
			{"POST", url + "/api/kernels", http.StatusForbidden}, {"POST", one + "/interrupt", http.StatusForbidden},
			{"POST", one + "/restart", http.StatusForbidden}, {"DELETE", one, http.StatusForbidden},
			{"GET", one + "/channels", http.StatusForbidden},
		} {
			if status, _ := ask(t, c.method, c.url, k, ephemeral); status != c.want {
				t.Errorf("%s: %s %s: %d, want %d", a.Name, c.method, strings.TrimPrefix(c.url, url), status, c.want)
			}
		}
	}
	if status, _ := ask(t, "GET", one, key, ""); status != http.StatusOK {
		t.Errorf("the kernel is gone: %d", status)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.boxes); n != 0 {
		t.Errorf("%d sandboxes", n)
	}
}

// All that is done to an ephemeral kernel is told to the Service, by a request
// or by a message.
func TestEphemeralKernelsAreVisited(t *testing.T) {
	url, s, _ := serve(t)
	conn := dial(t, url, kernels.Ephemeral)
	const id = "00000000-0000-4000-8000-000000000001"
	for _, m := range []string{
		`{"header":{"msg_id":"i","msg_type":"interrupt_request"},"channel":"control","content":{}}`,
		`{"header":{"msg_id":"r","msg_type":"shutdown_request"},"channel":"control","content":{"restart":true}}`,
		`{"header":{"msg_id":"s","msg_type":"shutdown_request"},"channel":"control","content":{"restart":false}}`,
	} {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
			t.Fatal(err)
		}
		await(t, conn, `"idle"`)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var want []string
	for _, op := range []string{"create", "open", "interrupt", "restart", "remove"} {
		want = append(want, "run.kernel."+op+" kernel-"+id)
	}
	if !slices.Equal(s.visits, want) {
		t.Errorf("visits: %q", s.visits)
	}
}

// A tenant that comes back under the name of one that was removed has none of
// its kernels, and all the room.
func TestNamesComeBack(t *testing.T) {
	url, s, _ := serve(t)
	var one string
	for range 64 {
		_, id := ask(t, "POST", url+"/api/kernels", key, ephemeral)
		one = url + "/api/kernels/" + id
	}
	s.mu.Lock()
	s.created = now()
	s.mu.Unlock()
	for _, c := range []struct {
		method, url string
		want        int
	}{
		{"GET", one, http.StatusNotFound}, {"GET", one + "/channels", http.StatusNotFound}, {"POST", one + "/restart", http.StatusNotFound},
		{"DELETE", one, http.StatusNotFound}, {"POST", url + "/api/kernels", http.StatusCreated},
	} {
		if status, _ := ask(t, c.method, c.url, key, ephemeral); status != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, strings.TrimPrefix(c.url, url), status, c.want)
		}
	}
	resp, err := http.Get(url + "/api/kernels?token=" + key)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list []json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list) != 1 {
		t.Errorf("%d kernels are listed: %v", len(list), err)
	}
}
