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

// message returns an execute_request in smolagents' format.
func message(code string) []byte {
	quoted := strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`).Replace(code)
	return []byte(`{"header":{"msg_id":"m1","session":"s","msg_type":"execute_request"},"content":{"code":"` + quoted + `"}}`)
}

// waitForText reads messages until one contains text, and returns that message.
func waitForText(t *testing.T, conn *websocket.Conn, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			t.Fatalf("no message contains %q: %v", text, err)
		}
		if strings.Contains(string(data), text) {
			return string(data)
		}
	}
}

// waitForEnd reads messages until the server closes the connection with the status want. If
// want is -1, any status is accepted.
func waitForEnd(t *testing.T, conn *websocket.Conn, want websocket.StatusCode) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // large messages take seconds with the race detector
	defer cancel()
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			if ctx.Err() != nil || want >= 0 && websocket.CloseStatus(err) != want {
				t.Errorf("the end of the connection is not %d: %v", want, err)
			}
			return
		}
	}
}

// A step sees the state of the previous step. A restart clears the state.
func TestStatePersistsBetweenSteps(t *testing.T) {
	url, s, _ := serve(t)
	conn := dial(t, url, kernels.Ephemeral)
	for _, m := range [][]byte{
		message("a"), message("raise"),
		[]byte(`{"header":{"msg_id":"r","msg_type":"shutdown_request"},"channel":"control","content":{"restart":true}}`), message("b"),
	} {
		if err := conn.Write(t.Context(), websocket.MessageText, m); err != nil {
			t.Fatal(err)
		}
		waitForText(t, conn, `"idle"`)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) != 3 || s.steps[0].State != nil || string(s.steps[1].State) != `{"after":1}` || s.steps[1].Count != 1 || s.steps[2].State != nil || s.steps[2].Count != 0 {
		t.Errorf("steps: %+v %+v %+v", s.steps[0], s.steps[1], s.steps[2])
	}
	// A restart keeps the list of packages, like a restart of the interpreter in a sandbox.
	if s.steps[0].Packages != nil || !slices.Equal(s.steps[1].Packages, []string{"pa"}) || !slices.Equal(s.steps[2].Packages, []string{"pa", "praise"}) {
		t.Errorf("packages: %q %q %q", s.steps[0].Packages, s.steps[1].Packages, s.steps[2].Packages)
	}
}

// Code is interrupted by a message, by an HTTP request, and when its client
// disconnects.
func TestCodeCanBeInterrupted(t *testing.T) {
	for _, spec := range []string{kernels.Stateful, kernels.Ephemeral} {
		t.Run(spec, func(t *testing.T) {
			url, s, _ := serve(t)
			conn := dial(t, url, spec)
			if err := conn.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
				t.Fatal(err)
			}
			waitForText(t, conn, "waits")
			if spec == kernels.Ephemeral { // the contexts of the stub ignore interrupts
				m := `{"header":{"msg_id":"i","msg_type":"interrupt_request"},"channel":"control","content":{}}`
				if err := conn.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
					t.Fatal(err)
				}
				waitForText(t, conn, `"KeyboardInterrupt"`)
				if err := conn.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
					t.Fatal(err)
				}
				waitForText(t, conn, "waits")
			}
			before := s.countInterrupts()
			conn.CloseNow()
			s.waitForInterrupt(t, before, "the code goes on without its client")
		})
	}
}

// countInterrupts returns the number of interrupted runs.
func (s *scriptedService) countInterrupts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// waitForInterrupt waits until the number of interrupts exceeds before. After a timeout, it
// fails the test with the message in otherwise.
func (s *scriptedService) waitForInterrupt(t *testing.T, before int, otherwise string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); s.countInterrupts() == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}

// A client that is connected but does not read blocks its code only until the
// time limit. Then the code is interrupted.
func TestUnreadMessagesDisconnectClient(t *testing.T) {
	for _, spec := range []string{kernels.Stateful, kernels.Ephemeral} {
		t.Run(spec, func(t *testing.T) {
			url, s, d := serve(t)
			d.SendWithin(100 * time.Millisecond)
			conn := dial(t, url, spec)
			if err := conn.Write(t.Context(), websocket.MessageText, message("flood")); err != nil {
				t.Fatal(err)
			}
			s.waitForInterrupt(t, 0, "the code waits for its client")
		})
	}
}

// Code on the control channel is queued like code on the shell channel, and does not block
// interrupts on either channel.
func TestControlChannelCodeAllowsInterrupts(t *testing.T) {
	url, _, _ := serve(t)
	conn := dial(t, url, kernels.Ephemeral)
	for _, channel := range []string{"control", "shell"} {
		for _, m := range []string{
			`{"header":{"msg_id":"w","msg_type":"execute_request"},"channel":"control","content":{"code":"wait"}}`,
			`{"header":{"msg_id":"i","msg_type":"interrupt_request"},"channel":"` + channel + `","content":{}}`,
		} {
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(m, "wait") {
				waitForText(t, conn, "waits")
			}
		}
		waitForText(t, conn, `"KeyboardInterrupt"`)
	}
}

// When the server stops, it ends each connection with a close message.
func TestCloseEndsConnections(t *testing.T) {
	url, s, d := serve(t)
	conn := dial(t, url, kernels.Stateful)
	if err := conn.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
		t.Fatal(err)
	}
	waitForText(t, conn, "waits")
	go d.Close()
	waitForEnd(t, conn, websocket.StatusGoingAway)
	s.waitForInterrupt(t, 0, "the code goes on without its client")
}

// When a kernel is removed, each of its connections receives the message that the kernel is
// dead and is then closed. A client that requested the removal over its connection, or whose
// code ran, receives the response first.
func TestDeletedKernelClosesConnections(t *testing.T) {
	for what, remove := range map[string]func(t *testing.T, url string, conn *websocket.Conn){
		"a request": func(t *testing.T, url string, _ *websocket.Conn) {
			if status, _ := doRequest(t, "DELETE", url, key, ""); status != http.StatusNoContent {
				t.Fatal(status)
			}
		},
		"a message on control": func(t *testing.T, _ string, conn *websocket.Conn) { shutDown(t, conn, "control") },
		"a message on shell":   func(t *testing.T, _ string, conn *websocket.Conn) { shutDown(t, conn, "shell") },
	} {
		for _, spec := range []string{kernels.Stateful, kernels.Ephemeral} {
			t.Run(spec+", "+what, func(t *testing.T) {
				url, s, _ := serve(t)
				_, id := doRequest(t, "POST", url+"/api/kernels", key, `{"name":"`+spec+`"}`)
				one, two := connect(t, url, id), connect(t, url, id)
				if err := two.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
					t.Fatal(err)
				}
				waitForText(t, two, "waits")
				remove(t, url+"/api/kernels/"+id, one)
				s.waitForInterrupt(t, 0, "the code goes on without its kernel")
				waitForText(t, one, `"dead"`)
				waitForEnd(t, one, websocket.StatusNormalClosure)
				if output := waitForText(t, two, `"execute_reply"`); strings.Contains(output, "kernel-") {
					t.Errorf("the reply names the sandbox: %s", output)
				}
				waitForText(t, two, `"dead"`)
				waitForEnd(t, two, websocket.StatusNormalClosure)
			})
		}
	}
}

// shutDown shuts down a kernel over a channel of a connection.
func shutDown(t *testing.T, conn *websocket.Conn, channel string) {
	t.Helper()
	m := `{"header":{"msg_id":"s","msg_type":"shutdown_request"},"channel":"` + channel + `","content":{"restart":false}}`
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(m)); err != nil {
		t.Fatal(err)
	}
	if output := waitForText(t, conn, `"shutdown_reply"`); !strings.Contains(output, `"channel":"`+channel+`"`) {
		t.Errorf("the reply is on another channel: %s", output)
	}
	waitForText(t, conn, `"idle"`)
}

// A client that exceeds the limit of its queue is disconnected.
func TestFullQueueDisconnectsClient(t *testing.T) {
	url, _, _ := serve(t)
	conn := dial(t, url, kernels.Ephemeral)
	for range 80 {
		if err := conn.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
			break // the connection is already closed
		}
	}
	waitForEnd(t, conn, websocket.StatusTryAgainLater)
}

// The total size of queued messages is limited, too.
func TestQueuedBytesAreLimited(t *testing.T) {
	url, _, _ := serve(t)
	conn := dial(t, url, kernels.Ephemeral)
	if err := conn.Write(t.Context(), websocket.MessageText, message("wait")); err != nil {
		t.Fatal(err)
	}
	large := message(strings.Repeat("x", 15<<20))
	for range 5 {
		if err := conn.Write(t.Context(), websocket.MessageText, large); err != nil {
			break // the connection is already closed
		}
	}
	waitForEnd(t, conn, -1) // the server may stop reading while the client still writes
}

// The number of a tenant's ephemeral kernels is limited. The limit does not affect other
// tenants.
func TestEphemeralKernelsAreLimitedPerTenant(t *testing.T) {
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

// A list omits a kernel that ends while the list is being built. Any other error makes the list
// fail.
func TestListSkipsEndedKernels(t *testing.T) {
	for kind, want := range map[brig.Kind]int{
		brig.NotFound: http.StatusOK, brig.FailedPrecondition: http.StatusOK,
		brig.Unavailable: http.StatusServiceUnavailable, brig.PermissionDenied: http.StatusForbidden,
	} {
		url, s, _ := serve(t)
		doRequest(t, "POST", url+"/api/kernels", key, "")
		s.mu.Lock()
		s.failure = brig.Errorf(kind, "so it is")
		s.mu.Unlock()
		if status, _ := doRequest(t, "GET", url+"/api/kernels", key, ""); status != want {
			t.Errorf("%s: %d, want %d", kind, status, want)
		}
	}
}

// The environment of an ephemeral kernel is validated when the kernel is created, because it is
// stored for all later runs.
func TestEnvironmentIsValidated(t *testing.T) {
	url, _, _ := serve(t)
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprintf(`"V%d":""`, i)
	}
	for env, want := range map[string]int{
		`{"A":"b"}`: http.StatusCreated, `{"A=":"b"}`: http.StatusBadRequest, `{"":"b"}`: http.StatusBadRequest, `{"A":"\u0000"}`: http.StatusBadRequest,
		"{" + strings.Join(many, ",") + "}": http.StatusBadRequest, `{"A":"` + strings.Repeat("x", 1<<20) + `"}`: http.StatusRequestEntityTooLarge,
	} {
		if status, _ := doRequest(t, "POST", url+"/api/kernels", key, `{"name":"python3-ephemeral","env":`+env+`}`); status != want {
			t.Errorf("%.40s: %d, want %d", env, status, want)
		}
	}
}

func TestMatchesRecognizesKernelPaths(t *testing.T) {
	for path, want := range map[string]bool{
		"/api": true, "/api/kernels": true, "/api/kernels/x/channels": true, "/api/kernelspecs": true,
		"/api/admin/sandbox": false, "/api/v1/admin/sandbox": false, "/v1/sandboxes": false, "/apikernels": false, "/api/kernelsx": false, "/": false,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := kernels.Matches(r); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
