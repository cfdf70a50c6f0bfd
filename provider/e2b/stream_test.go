package e2b

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestEndlessEventIsRejected verifies that the client stops reading an endless event. A
// sandbox's services are untrusted, because a program may have replaced them.
func TestEndlessEventIsRejected(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+json")
		for _, event := range []string{`{"start": {"pid": 1}}`, `{"data": {"stdout": "eWVz"}}`, `{"data": {"stdout": "` + strings.Repeat("AAAA", 4<<20) + `"}}`} {
			text := `{"event": ` + event + `}`
			if _, err := w.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))); err != nil {
				return
			}
			_, _ = io.WriteString(w, text) // a client that stops reading closes the connection
		}
	}))
	defer srv.Close()
	a := newAPI(&Config{SandboxURL: srv.URL, Timeout: 5}, func(brig.Call) {})
	b, err := a.newBox(&sandbox{SandboxID: "i1"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.connectAgent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := make([]byte, 3)
	if _, err := io.ReadFull(s, got); err != nil || string(got) != "yes" {
		t.Fatalf("%q, %v", got, err)
	}
	if n, err := s.Read(got); err == nil {
		t.Errorf("%d bytes of it were taken", n)
	}
}
