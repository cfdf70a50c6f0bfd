package e2e

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/agentrun"
	"github.com/brig-run/brig/provider/agentrun/agentruntest"
	"github.com/brig-run/brig/provider/providertest"
)

// TestProgramsAtAgentRun verifies that programs have the same results on AgentRun as on other
// providers. A test double of the AgentRun API runs them in sandboxes and interpreters of an
// engine. The provider's wrapper runs as one cell of a session.
//
//suite:part providers full
func TestProgramsAtAgentRun(t *testing.T) {
	e, ctx := newEngine(t)
	box, err := e.Create(ctx, brig.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	const id, secret, region = "LTAI5tDouble", "secret", "cn-hangzhou"
	double := agentruntest.New(agentruntest.Options{
		ID: id, Secret: secret, Region: region,
		Machine: func(string) (agentruntest.Machine, error) {
			return &sandboxMachine{e: e, ctx: ctx, box: string(box.ID)}, nil
		},
	})
	srv := httptest.NewServer(double)
	t.Cleanup(srv.Close)
	p, err := agentrun.Open(brig.ProviderEnv{ID: agentrun.Name, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Called: func(brig.Call) {}}, agentrun.Config{
		AccessKeyID: id, AccessKeySecret: secret, AccountID: "1", Region: region, Timeout: 30,
		ControlEndpoint: srv.URL, DataEndpoint: srv.URL, AllowPrivate: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	providertest.Programs(t, func(ctx context.Context, prog brig.Program) (*brig.Outcome, error) {
		return p.Run(ctx, "x", prog, brig.IO{})
	})
	if n := double.Live(); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

// sandboxMachine is a sandbox of the test double. It runs code in interpreters in an engine's
// sandbox, because AgentRun runs programs in similar interpreters.
type sandboxMachine struct {
	e        *engine.Engine
	ctx      context.Context
	box      string
	contexts []string
}

// Execute implements agentruntest.Machine.
func (b *sandboxMachine) Execute(_ context.Context, language, code string) (string, string, error) {
	c, err := b.e.CreateContext(b.ctx, b.box, brig.ContextSpec{Language: brig.Language(language)})
	if err != nil {
		return "", "", err
	}
	b.contexts = append(b.contexts, c.ID)
	r, err := b.e.RunCode(b.ctx, b.box, brig.Code{Context: c.ID, Source: code, Timeout: 20 * time.Second}, nil)
	if err != nil {
		return "", "", err
	}
	if r.Error != nil {
		err = errors.New(r.Error.Traceback)
	}
	text := func(o brig.Output) string { return string(o.Head) + string(o.Tail) }
	return text(r.Stdout), text(r.Stderr), err
}

// Read implements agentruntest.Machine.
func (b *sandboxMachine) Read(path string) ([]byte, error) {
	_, f, err := b.e.Files(b.box).Read(b.ctx, brig.Path{Name: path}, 0, -1)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// Close implements agentruntest.Machine.
func (b *sandboxMachine) Close() error {
	err := b.e.Files(b.box).Remove(b.ctx, brig.Path{Name: "/workspace/artifacts"})
	for _, c := range b.contexts {
		err = errors.Join(err, b.e.RemoveContext(b.ctx, b.box, c))
	}
	return err
}
