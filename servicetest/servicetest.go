// Package servicetest is the conformance suite for brig.Service. Both the engine and the client,
// through an API, must pass it, so that they behave identically for callers.
package servicetest

import (
	"context"
	"crypto/rand"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// timeout is how long the suite waits for an immediate effect on a busy host.
const timeout = 10 * time.Second

// Harness is the configuration of the suite.
type Harness struct {
	// Service is the service under test. Context returns the contexts of its calls, with an
	// operator of any tenant as the actor. The default is the test's context.
	Service brig.Service
	Context func(t *testing.T) context.Context
	// Other and OtherContext are the equivalents for an operator of another tenant. They default to
	// Service and Context; at least one of the two must be set.
	Other        brig.Service
	OtherContext func(t *testing.T) context.Context
	// Real reports whether the service runs real commands. Otherwise, commands are in the language
	// of the fake provider.
	Real bool
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	if h.Context == nil {
		h.Context = func(t *testing.T) context.Context { return t.Context() }
	}
	if h.Other == nil && h.OtherContext == nil {
		t.Fatal("the harness has no other tenant")
	}
	if h.OtherContext == nil {
		h.OtherContext = h.Context
	}
	if h.Other == nil {
		h.Other = h.Service
	}
	t.Run("exec", h.testExec)
	t.Run("refusals", h.testRefusals)
	t.Run("life", h.testLifecycle)
	t.Run("list", h.testList)
	t.Run("tenancy", tenancyCases{h}.testTenancy)
	t.Run("run", h.testRun)
	t.Run("contexts", codeCases{h}.testContexts)
	t.Run("tenants", tenancyCases{h}.testTenantIsolation)
	t.Run("images", h.testImages)
	t.Run("secrets", secretCases{h}.testSecrets)
	t.Run("enforcement", h.testEnforcement)
	t.Run("workspaces", workspaceCases{h}.testWorkspaces)
}

// argv translates a command of the fake provider's language to a real command:
// echo WORDS…, stderr WORDS…, exit N, sleep SECONDS, cat, env NAME, spew N.
func (h Harness) argv(words ...string) []string {
	if !h.Real {
		return words
	}
	scripts := map[string]string{
		"echo":   `echo "$*"`,
		"stderr": `echo "$*" >&2`,
		"exit":   `exit "$1"`,
		"sleep":  `exec sleep "$1"`,
		"cat":    `exec cat`,
		"env":    `eval "echo \"\$$1\""`,
		"spew":   `head -c "$1" /dev/zero | tr '\0' x`,
	}
	return append([]string{"/bin/sh", "-c", scripts[words[0]], "sh"}, words[1:]...)
}

// cmd returns a command in the fake provider's language.
func (h Harness) cmd(words ...string) brig.Command { return brig.Command{Argv: h.argv(words...)} }

// name returns a random, unused name.
func name() string { return "t-" + strings.ToLower(rand.Text()[:12]) }

// sandbox creates a sandbox that is removed when the test ends.
func (h Harness) sandbox(t *testing.T, spec brig.Spec) *brig.Sandbox {
	t.Helper()
	ctx := h.Context(t)
	s, err := h.Service.Create(ctx, spec)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	t.Cleanup(func() {
		err := h.Service.Remove(context.WithoutCancel(ctx), string(s.ID))
		if err != nil && brig.KindOf(err) != brig.NotFound {
			t.Errorf("Remove: %v", err)
		}
	})
	return s
}

// wantKind fails the test unless err is of kind k.
func wantKind(t *testing.T, what string, err error, k brig.Kind) {
	t.Helper()
	if brig.KindOf(err) != k {
		t.Errorf("%s: error %v of kind %q, want %q", what, err, brig.KindOf(err), k)
	}
}

// wantField fails the test unless err names one of the given fields of the
// request.
func wantField(t *testing.T, what string, err error, fields ...string) {
	t.Helper()
	if k := brig.KindOf(err); k != brig.InvalidArgument && k != brig.NotFound {
		t.Errorf("%s: error %v of kind %q, want %q", what, err, k, brig.InvalidArgument)
		return
	}
	if field := brig.AsError(err).Field; !slices.Contains(fields, field) {
		t.Errorf("%s: %v blames the field %q, want %v", what, err, field, fields)
	}
}

// eventually waits until ok returns true, or fails the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(timeout); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, timeout)
		}
	}
}

// logs returns the last tail lines of a sandbox's log, or the whole log if tail is 0.
func (h Harness) logs(t *testing.T, sandbox string, tail int) string {
	t.Helper()
	r, err := h.Service.Logs(h.Context(t), sandbox, brig.LogOptions{Tail: tail})
	if err != nil {
		t.Fatalf("Logs: %v", err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("read log: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("close log: %v", err)
	}
	return string(b)
}
