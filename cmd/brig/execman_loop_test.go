package main

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	execmanapi "github.com/brig-run/brig/api/execman"
	"github.com/brig-run/brig/provider/execman"
)

// loopedService is a service that runs its programs at a provider.
type loopedService struct{ p *execman.Provider }

func (l loopedService) Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error) {
	return l.p.Run(ctx, "x", p, sio)
}

// TestExecmanLoopIsDetected checks that the server detects a provider with the
// server's own executor manager API as its endpoint. The provider's check detects it,
// and so does the first program that returns to the server. The control is a server
// without a name, where the looping program fills the pool.
func TestExecmanLoopIsDetected(t *testing.T) {
	for server, want := range map[string]string{"a": "came back to this server", "": "takes no more requests"} {
		var to loopedService
		api := execmanapi.New(execmanapi.Options{
			Service: &to, Server: server, Pool: 2, Queue: 300 * time.Millisecond, Timeout: 20 * time.Second,
			Actor: brig.Actor{Name: "execman", Tenant: "default", Role: brig.Member},
		})
		srv := httptest.NewServer(api)
		defer srv.Close()
		c := execman.Config{Endpoint: srv.URL, Timeout: 20, PoolSize: 10, AllowPrivate: true}
		p, err := execman.Open(brig.ProviderEnv{ID: execman.Name, Server: server, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Called: func(brig.Call) {}}, c)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		to.p = p
		if err := p.Check(t.Context()); (brig.KindOf(err) == brig.InvalidConfig) != (server != "") {
			t.Errorf("server %q: the check: %v", server, err)
		}
		program := brig.Program{Language: brig.Python, Code: "def main():\n    return 1\n", Arguments: []byte("{}"), Timeout: 20 * time.Second}
		_, err = p.Run(t.Context(), "x", program, brig.IO{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("server %q: a program: %v", server, err)
		}
	}
}
