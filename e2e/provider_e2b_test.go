package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/e2b"
	"github.com/brig-run/brig/provider/providertest"
)

// TestE2BProviderConformance verifies that the E2B provider satisfies the
// provider contract, with sandboxes from Brig's own E2B API.
//
//suite:part providers full
func TestE2BProviderConformance(t *testing.T) {
	s := startE2B(t)
	site := t.TempDir()
	open := func(t *testing.T) brig.Provider { return s.provider(t, site, s.key(t), bin(t, "brig-agent")) }
	p := open(t)
	img, err := p.(brig.Imager).Image(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	const (
		one    = "programs of the door's sandboxes have no privileges, and so no other accounts"
		uplink = "there is no device for interfaces"
		freeze = "E2B's protocol pauses a sandbox with its memory, which the door does not"
	)
	providertest.Run(t, providertest.Harness{
		Provider: p, Image: img.Digest, Real: true, Next: open,
		Lacks: map[string]string{
			"Freeze": freeze, "UplinkFrozen": freeze, "FilesFull": "the disk is the template's",
			"User": one, "FilesOwners": one, "FilesRights": one, "TreesRace": one, "TreesSealed": one,
			"Uplink": uplink, "UplinkReplaced": uplink, "UplinkEnd": uplink, "UplinkRecovered": uplink, "UplinkBound": uplink,
			"UplinkLarge": uplink, "UplinkSettings": uplink, "UplinkHostileFiles": uplink,
		},
	})
}

// provider opens an E2B provider with the given data directory, key and agent binary.
func (s *e2bServer) provider(t *testing.T, dir, key, agent string) brig.Provider {
	t.Helper()
	config := e2b.Driver().Config().(*e2b.Config)
	config.APIKey, config.APIURL, config.SandboxURL = key, s.url, s.url
	p, err := e2b.Driver().Open(t.Context(), brig.ProviderEnv{ID: e2b.Name, Dir: dir, Agent: agent, Called: func(brig.Call) {}}, config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestE2BProviderDetectsEndedSandboxes verifies that a failed creation leaves no sandbox in the cloud, and that
// the provider detects a sandbox that ended without its request.
//
//suite:part providers
func TestE2BProviderDetectsEndedSandboxes(t *testing.T) {
	s := startE2B(t)
	site := t.TempDir()
	if err := s.provider(t, t.TempDir(), "e2b_"+strings.Repeat("0", 40), "").(brig.Checker).Check(t.Context()); brig.KindOf(err) != brig.InvalidConfig {
		t.Errorf("a wrong key: %v", err)
	}
	p := s.provider(t, site, s.key(t), bin(t, "brig-agent"))
	if err := p.(brig.Checker).Check(t.Context()); err != nil {
		t.Errorf("the right key: %v", err)
	}
	img, err := p.(brig.Imager).Image(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.(brig.Imager).Image(t.Context(), "no-such-template"); brig.KindOf(err) != brig.NotFound {
		t.Errorf("a template that is not there: %v", err)
	}
	spec := brig.Spec{Name: "x", Image: img.Digest, Limits: brig.DefaultLimitRange().Default}
	broken := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho no agent\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.provider(t, site, s.key(t), broken).Create(t.Context(), "broken", spec, time.Now().Add(time.Minute)); brig.KindOf(err) != brig.ConnectionFailed {
		t.Errorf("with something that is no agent: %v", err)
	}
	if n, err := p.Sweep(t.Context(), nil); n != 0 || err != nil {
		t.Errorf("%d are left of it, %v", n, err)
	}
	in, err := p.Create(t.Context(), "killed", spec, time.Now().Add(5*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	// The sweep of another server with the same key must not remove the
	// sandbox.
	if n, err := s.provider(t, t.TempDir(), s.key(t), bin(t, "brig-agent")).Sweep(t.Context(), nil); n != 0 || err != nil {
		t.Errorf("another server's sweep found %d, %v", n, err)
	}
	if u, err := in.Usage(t.Context()); err == nil && u.Memory <= 0 || err != nil && brig.KindOf(err) != brig.Unimplemented {
		t.Errorf("usage: %+v, %v", u, err)
	}
	// The server's own sweep must remove it.
	if n, err := s.provider(t, site, s.key(t), bin(t, "brig-agent")).Sweep(t.Context(), nil); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	select {
	case <-in.Done():
		if e := in.Exit(); e.Reason != brig.Crashed && e.Reason != brig.Killed {
			t.Errorf("it ended with %+v", e)
		}
	case <-time.After(time.Minute):
		t.Error("nobody notices that it has ended")
	}
	if _, err := p.Recover(t.Context(), "killed", in.Handle()); brig.KindOf(err) != brig.NotFound {
		t.Errorf("recovered: %v", err)
	}
}

// key returns the API key for E2B clients.
func (s *e2bServer) key(t *testing.T) string {
	t.Helper()
	for _, v := range s.env {
		if key, ok := strings.CutPrefix(v, "E2B_API_KEY="); ok {
			return key
		}
	}
	t.Fatal("there is no key")
	return ""
}
