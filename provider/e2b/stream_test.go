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

// A sandbox's services are as hostile as who may have taken them over: an event
// that has no end is not read to it.
func TestLargeEvent(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+json")
		for _, event := range []string{`{"start": {"pid": 1}}`, `{"data": {"stdout": "eWVz"}}`, `{"data": {"stdout": "` + strings.Repeat("AAAA", 4<<20) + `"}}`} {
			text := `{"event": ` + event + `}`
			if _, err := w.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))); err != nil {
				return
			}
			_, _ = io.WriteString(w, text) // who reads no more hangs up
		}
	}))
	defer srv.Close()
	a := newAPI(&Config{SandboxURL: srv.URL, Timeout: 5}, func(brig.Call) {})
	s, err := a.box(&sandbox{SandboxID: "i1"}).open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := make([]byte, 3)
	if _, err := io.ReadFull(s, b); err != nil || string(b) != "yes" {
		t.Fatalf("%q, %v", b, err)
	}
	if n, err := s.Read(b); err == nil {
		t.Errorf("%d bytes of it were taken", n)
	}
}
