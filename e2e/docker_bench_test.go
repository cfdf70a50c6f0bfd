package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/docker"
)

// BenchmarkDocker compares the latencies of the docker provider and the gVisor provider on the
// same host. It alternates between the providers, so that all are measured under the same load.
func BenchmarkDocker(b *testing.B) {
	l := startDocker(b, "runsc")
	gvisor, images := newProvider(b, b.TempDir())
	host, err := images.Resolve(b.Context(), brig.HostImage)
	if err != nil {
		b.Fatal(err)
	}
	all := []*benchmarkedProvider{{name: "gvisor", p: gvisor, image: host.Digest}}
	for _, runtime := range []string{"runc", "runsc"} {
		p := l.provider(b, b.TempDir(), func(o *docker.Options) { o.Runtime = runtime })
		all = append(all, &benchmarkedProvider{name: "docker-" + runtime, p: p, image: l.digest(b, p)})
	}
	for _, c := range all { // warm up caches and the agent's volume
		c.round(b)
		c.took = nil
	}
	for b.Loop() {
		for _, c := range all {
			c.round(b)
		}
	}
	for _, c := range all {
		for what, took := range c.took {
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, c.name+"-"+what+"-p50-ms")
		}
	}
}

// benchmarkedProvider is a provider with the measured durations of its
// operations.
type benchmarkedProvider struct {
	name  string
	p     brig.Provider
	image string
	took  map[string][]time.Duration
}

// round creates, uses and destroys an instance.
func (c *benchmarkedProvider) round(b *testing.B) {
	b.Helper()
	timed := func(what string, f func() error) {
		begin := time.Now()
		if err := f(); err != nil {
			b.Fatalf("%s: %s: %v", c.name, what, err)
		}
		if c.took == nil {
			c.took = map[string][]time.Duration{}
		}
		c.took[what] = append(c.took[what], time.Since(begin))
	}
	var in brig.Instance
	run := func(id string, argv ...string) error {
		var out bytes.Buffer
		res, err := in.Exec(b.Context(), id, brig.Command{Argv: argv, Timeout: time.Minute}, brig.IO{Stdout: &out, Stderr: &out})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("%+v: %s", res, &out)
		}
		return err
	}
	python := []string{"python3", "-I", "-c", "print(6*7)"}
	timed("create-to-output", func() error {
		timed("create", func() (err error) {
			spec := brig.Spec{Name: "bench", Image: c.image, Limits: brig.DefaultLimitRange().Default}
			in, err = c.p.Create(b.Context(), brig.ID(fmt.Sprintf("b%d", time.Now().UnixNano())), spec, time.Now().Add(time.Minute))
			return err
		})
		return run("first", python...)
	})
	for i := range 10 {
		timed("exec", func() error { return run(fmt.Sprintf("t%d", i), "/bin/true") })
		timed("python", func() error { return run(fmt.Sprintf("p%d", i), python...) })
		timed("stat", func() error {
			_, err := in.Files().Stat(b.Context(), brig.Path{Name: "/etc/passwd"})
			return err
		})
	}
	timed("destroy", func() error { return in.Destroy(context.WithoutCancel(b.Context())) })
}
