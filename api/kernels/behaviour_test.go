package kernels_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/kernels"
)

// message is an execute_request as smolagents sends it.
func message(code string) []byte {
	quoted := strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`).Replace(code)
	return []byte(`{"header":{"msg_id":"m1","session":"s","msg_type":"execute_request"},"content":{"code":"` + quoted + `"}}`)
}

// await reads until something is said that has text in it.
func await(t *testing.T, conn *websocket.Conn, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			t.Fatalf("nobody says %q: %v", text, err)
		}
		if strings.Contains(string(data), text) {
			return
		}
	}
}

// awaitEnd reads until the connection ends.
func awaitEnd(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // large messages take seconds with the race detector
	defer cancel()
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			if ctx.Err() != nil {
				t.Error("nothing ends the connection")
			}
			return
		}
	}
}

// A step is given what the one before has left; a restart begins anew.
func TestStateGoesFromStepToStep(t *testing.T) {
	url, s, _ := serve(t)
	conn := dial(t, url, kernels.Ephemeral)
	for _, m := range [][]byte{
		message("a"), message("raise"),
		[]byte(`{"header":{"msg_id":"r","msg_type":"shutdown_request"},"channel":"control","content":{"restart":true}}`), message("b"),
	} {
		if err := conn.Write(t.Context(), websocket.MessageText, m); err != nil {
			t.Fatal(err)
		}
		await(t, conn, `"idle"`)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) != 3 || s.steps[0].State != nil || string(s.steps[1].State) != `{"after":1}` || s.steps[1].Count != 1 || s.steps[2].State != nil || s.steps[2].Count != 0 {
		t.Errorf("steps: %+v %+v %+v", s.steps[0], s.steps[1], s.steps[2])
	}
	// Packages stay, as in a sandbox whose interpreter begins anew.
	if s.steps[0].Packages != nil || !slices.Equal(s.steps[1].Packages, []string{"pa"}) || !slices.Equal(s.steps[2].Packages, []string{"pa", "praise"}) {
		t.Errorf("packages: %q %q %q", s.steps[0].Packages, s.steps[1].Packages, s.steps[2].Packages)
	}
}

// Code is interrupted by a message, by a request, and by its client's going
// away.
func TestCodeIsInterrupted(t *testing.T) {
	for _, spec := range []string{kernels.Stateful, kernels.Ephemeral} {
		t.Run(spec, func(t *testing.T) {
			url, s, _ := serve(t)
			conn := dial(t, url, spec)
			if err := conn.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
				t.Fatal(err)
			}
			await(t, conn, "waits")
			if spec == kernels.Ephemeral { // the stub's contexts heed no interrupt
				m := `{"header":{"msg_id":"i","msg_type":"interrupt_request"},"channel":"control","content":{}}`
				if err := conn.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
					t.Fatal(err)
				}
				await(t, conn, `"KeyboardInterrupt"`)
				if err := conn.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
					t.Fatal(err)
				}
				await(t, conn, "waits")
			}
			before := s.interrupted()
			conn.CloseNow()
			s.awaitInterrupted(t, before, "the code goes on without its client")
		})
	}
}

// interrupted is how often code was.
func (s *scripted) interrupted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// awaitInterrupted waits until code was interrupted once more.
func (s *scripted) awaitInterrupted(t *testing.T, before int, otherwise string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); s.interrupted() == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}

// A client that is there and does not read holds its code up for so long.
func TestWhoDoesNotReadIsLeft(t *testing.T) {
	for _, spec := range []string{kernels.Stateful, kernels.Ephemeral} {
		t.Run(spec, func(t *testing.T) {
			url, s, d := serve(t)
			d.SendWithin(100 * time.Millisecond)
			conn := dial(t, url, spec)
			if err := conn.Write(t.Context(), websocket.MessageText, message("flood")); err != nil {
				t.Fatal(err)
			}
			s.awaitInterrupted(t, 0, "the code waits for its client")
		})
	}
}

// Code on the control channel waits for its turn as any other does, and keeps
// nobody from interrupting it.
func TestCodeOnControlIsInterrupted(t *testing.T) {
	url, _, _ := serve(t)
	conn := dial(t, url, kernels.Ephemeral)
	for _, m := range []string{
		`{"header":{"msg_id":"w","msg_type":"execute_request"},"channel":"control","content":{"code":"wait"}}`,
		`{"header":{"msg_id":"i","msg_type":"interrupt_request"},"channel":"control","content":{}}`,
	} {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(m, "wait") {
			await(t, conn, "waits")
		}
	}
	await(t, conn, `"KeyboardInterrupt"`)
}

// A server that stops ends the connections.
func TestCloseEndsConnections(t *testing.T) {
	url, _, d := serve(t)
	conn := dial(t, url, kernels.Stateful)
	d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, _, err := conn.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the connection is still there: %v", err)
	}
}

// A kernel that is removed ends the connections to it; who has asked for it on
// one of them has the answer first.
func TestAKernelTakesItsConnections(t *testing.T) {
	for what, remove := range map[string]func(t *testing.T, url string, conn *websocket.Conn){
		"a request": func(t *testing.T, url string, _ *websocket.Conn) {
			if status, _ := ask(t, "DELETE", url, key, ""); status != http.StatusNoContent {
				t.Fatal(status)
			}
		},
		"a message": func(t *testing.T, _ string, conn *websocket.Conn) {
			m := `{"header":{"msg_id":"s","msg_type":"shutdown_request"},"channel":"control","content":{"restart":false}}`
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
				t.Fatal(err)
			}
			await(t, conn, `"shutdown_reply"`)
			await(t, conn, `"idle"`)
		},
	} {
		t.Run(what, func(t *testing.T) {
			url, s, _ := serve(t)
			_, id := ask(t, "POST", url+"/api/kernels", key, ephemeral)
			one, two := connect(t, url, id), connect(t, url, id)
			if err := two.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
				t.Fatal(err)
			}
			await(t, two, "waits")
			remove(t, url+"/api/kernels/"+id, one)
			s.awaitInterrupted(t, 0, "the code goes on without its kernel")
			awaitEnd(t, one)
			awaitEnd(t, two)
		})
	}
}

// Who sends more than may wait is told so.
func TestTheQueueIsBounded(t *testing.T) {
	url, _, _ := serve(t)
	conn := dial(t, url, kernels.Ephemeral)
	for range 80 {
		if err := conn.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
			break // it has been closed already
		}
	}
	awaitEnd(t, conn)
}

// Messages that wait are bounded by what they take as well.
func TestTheQueueIsBoundedByBytes(t *testing.T) {
	url, _, _ := serve(t)
	conn := dial(t, url, kernels.Ephemeral)
	if err := conn.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
		t.Fatal(err)
	}
	large := message(strings.Repeat("x", 15<<20))
	for range 5 {
		if err := conn.Write(t.Context(), websocket.MessageText, large); err != nil {
			break // it has been closed already
		}
	}
	awaitEnd(t, conn)
}

// A tenant may have so many ephemeral kernels, and leaves room for others'.
func TestEphemeralKernelsAreBounded(t *testing.T) {
	url, _, _ := serve(t)
	create := func(key string) int {
		resp, err := http.Post(url+"/api/kernels?token="+key, "", strings.NewReader(`{"name":"python3-ephemeral"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	for i := range 64 {
		if status := create(key); status != http.StatusCreated {
			t.Fatalf("kernel %d: %d", i, status)
		}
	}
	if a, b := create(key), create(rival); a != http.StatusTooManyRequests || b != http.StatusCreated {
		t.Errorf("one more: %d; another tenant's: %d", a, b)
	}
}

// A list leaves out a kernel that has ended meanwhile, and none that could not
// be asked.
func TestAListIsWhole(t *testing.T) {
	for kind, want := range map[brig.Kind]int{
		brig.NotFound: http.StatusOK, brig.FailedPrecondition: http.StatusOK,
		brig.Unavailable: http.StatusServiceUnavailable, brig.PermissionDenied: http.StatusForbidden,
	} {
		url, s, _ := serve(t)
		ask(t, "POST", url+"/api/kernels", key, "")
		s.mu.Lock()
		s.trouble = brig.Errorf(kind, "so it is")
		s.mu.Unlock()
		if status, _ := ask(t, "GET", url+"/api/kernels", key, ""); status != want {
			t.Errorf("%s: %d, want %d", kind, status, want)
		}
	}
}

// The environment of an ephemeral kernel is kept, so it is looked at first.
func TestEnvironmentsAreChecked(t *testing.T) {
	url, _, _ := serve(t)
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprintf(`"V%d":""`, i)
	}
	for env, want := range map[string]int{
		`{"A":"b"}`: http.StatusCreated, `{"A=":"b"}`: http.StatusBadRequest, `{"":"b"}`: http.StatusBadRequest, `{"A":"\u0000"}`: http.StatusBadRequest,
		"{" + strings.Join(many, ",") + "}": http.StatusBadRequest, `{"A":"` + strings.Repeat("x", 1<<20) + `"}`: http.StatusRequestEntityTooLarge,
	} {
		if status, _ := ask(t, "POST", url+"/api/kernels", key, `{"name":"python3-ephemeral","env":`+env+`}`); status != want {
			t.Errorf("%.40s: %d, want %d", env, status, want)
		}
	}
}

func TestWants(t *testing.T) {
	for path, want := range map[string]bool{
		"/api": true, "/api/kernels": true, "/api/kernels/x/channels": true, "/api/kernelspecs": true,
		"/api/admin/sandbox": false, "/api/v1/admin/sandbox": false, "/v1/sandboxes": false, "/apikernels": false, "/api/kernelsx": false, "/": false,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := kernels.Wants(r); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
