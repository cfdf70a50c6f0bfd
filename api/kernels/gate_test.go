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

// doRequest sends a request with a key, and returns the status and the kernel's id.
func doRequest(t *testing.T, method, url, key, body string) (int, string) {
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
	_ = json.NewDecoder(resp.Body).Decode(&k) // a list or an error has no id
	return resp.StatusCode, k.ID
}

const ephemeral = `{"name":"python3-ephemeral"}`

// A caller that may not run code cannot change the tenant's ephemeral kernels. A viewer can
// only read them. To a key whose scopes do not include kernels, the kernels do not exist.
func TestEphemeralKernelsRequireRole(t *testing.T) {
	url, s, _ := serve(t)
	_, id := doRequest(t, "POST", url+"/api/kernels", key, ephemeral)
	one := url + "/api/kernels/" + id
	for k, a := range lesser {
		list, look, change := http.StatusForbidden, http.StatusForbidden, http.StatusForbidden
		if a.Role == brig.Viewer {
			list, look = http.StatusOK, http.StatusOK
		}
		if a.Authorize(brig.OpGetKernel) != nil {
			look, change = http.StatusNotFound, http.StatusNotFound
		}
		for _, c := range []struct {
			method, url string
			want        int
		}{
			{"GET", url + "/api/kernels", list}, {"GET", one, look},
			{"POST", url + "/api/kernels", http.StatusForbidden}, {"POST", one + "/interrupt", change},
			{"POST", one + "/restart", change}, {"DELETE", one, change},
			{"GET", one + "/channels", change},
		} {
			if status, _ := doRequest(t, c.method, c.url, k, ephemeral); status != c.want {
				t.Errorf("%s: %s %s: %d, want %d", a.Name, c.method, strings.TrimPrefix(c.url, url), status, c.want)
			}
		}
	}
	if status, _ := doRequest(t, "GET", one, key, ""); status != http.StatusOK {
		t.Errorf("the kernel no longer exists: status %d", status)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.boxes); n != 0 {
		t.Errorf("%d sandboxes", n)
	}
}

// A viewer cannot open, interrupt or restart a kernel that is a sandbox, even if the kernel has
// no interpreter yet. Control: a member can.
func TestSandboxKernelsRequireRole(t *testing.T) {
	url, s, _ := serve(t)
	_, id := doRequest(t, "POST", url+"/api/kernels", key, "")
	one := url + "/api/kernels/" + id
	var viewer string
	for k, a := range lesser {
		if a.Role == brig.Viewer {
			viewer = k
		}
	}
	for _, unused := range []bool{true, false} {
		s.mu.Lock()
		s.unused = unused
		s.mu.Unlock()
		for _, c := range []struct {
			method, path         string
			mayNot, wantOfMember int
		}{
			{"GET", "", http.StatusOK, http.StatusOK},
			{"GET", "/channels", http.StatusForbidden, http.StatusBadRequest}, // the request has no Upgrade header
			{"POST", "/interrupt", http.StatusForbidden, http.StatusNoContent},
			{"POST", "/restart", http.StatusForbidden, http.StatusOK},
		} {
			for k, want := range map[string]int{viewer: c.mayNot, key: c.wantOfMember} {
				if status, _ := doRequest(t, c.method, one+c.path, k, ""); status != want {
					t.Errorf("%s %q of an unused kernel %v, by a member %v: %d, want %d", c.method, c.path, unused, k == key, status, want)
				}
			}
		}
	}
}

// Every request and message for an ephemeral kernel is authorized by the
// Service.
func TestEphemeralKernelCallsPassGate(t *testing.T) {
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
		waitForText(t, conn, `"idle"`)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var want []string
	for _, op := range []string{"create", "open", "interrupt", "restart", "remove"} {
		want = append(want, "run.kernel."+op+" kernel-"+id)
	}
	if !slices.Equal(s.authorized, want) {
		t.Errorf("visits: %q", s.authorized)
	}
}

// If a tenant is removed and created again under the same name, the new tenant has none of the
// old kernels, and the old kernels do not count towards its limit.
func TestRecreatedTenantHasNoKernels(t *testing.T) {
	url, s, _ := serve(t)
	var one string
	for range 64 {
		_, id := doRequest(t, "POST", url+"/api/kernels", key, ephemeral)
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
		if status, _ := doRequest(t, c.method, c.url, key, ephemeral); status != c.want {
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
