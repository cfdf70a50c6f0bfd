package bench

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/image"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/provider/gvisor"
	"github.com/brig-run/brig/store/sqlite"
)

// newEngine returns an engine on real gVisor that uses the programs of `make
// build`.
func newEngine(b *testing.B) (*engine.Engine, context.Context) {
	return newPooledEngine(b, engine.PoolOptions{})
}

func newPooledEngine(b *testing.B, pool engine.PoolOptions) (*engine.Engine, context.Context) {
	b.Helper()
	dir := b.TempDir()
	images, err := image.Open(image.Options{Dir: dir, HostAge: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	p, err := gvisor.Open(gvisor.Options{
		DataDir: dir, Engine: testenv.Bin(b, "brig-engine"), Shim: testenv.Bin(b, "brig-shim"), Agent: testenv.Bin(b, "brig-agent"),
		Root: func(digest string) (gvisor.Root, error) {
			r, err := images.Root(digest)
			out := gvisor.Root{Dir: r.Dir}
			for _, m := range r.Binds {
				out.Binds = append(out.Binds, gvisor.Bind(m))
			}
			return out, err
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	store, err := sqlite.Open(b.Context(), filepath.Join(dir, "brig.db"))
	if err != nil {
		b.Fatal(err)
	}
	if err := store.PutTenant(b.Context(), &brig.Tenant{Name: "bench"}); err != nil {
		b.Fatal(err)
	}
	e := engine.New(b.Context(), engine.Options{Store: store, Provider: p, Images: images, LimitRange: brig.DefaultLimitRange(), Pool: pool, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if pool.Memory > 0 {
		if err := e.Recover(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	ctx := brig.WithActor(b.Context(), brig.Actor{Name: "bench", Tenant: "bench", Role: brig.Operator})
	b.Cleanup(func() {
		e.Close()
		if _, err := p.Sweep(context.WithoutCancel(ctx), nil); err != nil {
			b.Error(err)
		}
		store.Close()
	})
	return e, ctx
}

func BenchmarkBarePython(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/usr/bin/python3", "-c", "print(6*7)").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRunPython(b *testing.B) {
	e, ctx := newEngine(b)
	for b.Loop() {
		if _, err := e.Run(ctx, brig.Program{Language: brig.Python, Code: "print(6*7)"}, brig.IO{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRunHit measures pool hits. It waits, with the timer stopped, until the pool is full
// again.
func BenchmarkRunHit(b *testing.B) {
	e, ctx := newPooledEngine(b, engine.PoolOptions{
		Memory: 1 << 30, Warm: []engine.WarmClass{{Image: brig.HostImage, Language: brig.Python, Count: 2}},
	})
	for b.Loop() {
		b.StopTimer()
		awaitPool(b, e, ctx)
		b.StartTimer()
		o, err := e.Run(ctx, brig.Program{Language: brig.Python, Code: "print(6*7)"}, brig.IO{})
		if err != nil || o.Pool != brig.PoolHit || string(o.Stdout.Head) != "42\n" {
			b.Fatal(o, err)
		}
	}
}

func awaitPool(b *testing.B, e *engine.Engine, ctx context.Context) {
	for range 3000 {
		shelves, err := e.Pool(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if len(shelves) > 0 && shelves[0].Ready >= shelves[0].Target {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.Fatal("the pool does not fill")
}

func BenchmarkCode(b *testing.B) {
	e, ctx := sandbox(b)
	for b.Loop() {
		r, err := e.RunCode(ctx, "one", brig.Code{Source: "print(6*7)"}, nil)
		if err != nil || string(r.Stdout.Head) != "42\n" {
			b.Fatal(r, err)
		}
	}
}

func BenchmarkCreateRemove(b *testing.B) {
	e, ctx := newEngine(b)
	for b.Loop() {
		s, err := e.Create(ctx, brig.Spec{})
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Remove(ctx, s.Spec.Name); err != nil {
			b.Fatal(err)
		}
	}
}

// sandbox creates a sandbox that lives as long as the benchmark.
func sandbox(b *testing.B) (*engine.Engine, context.Context) {
	e, ctx := newEngine(b)
	if _, err := e.Create(ctx, brig.Spec{Name: "one", TTL: time.Hour}); err != nil {
		b.Fatal(err)
	}
	return e, ctx
}

func BenchmarkExecTrue(b *testing.B) {
	e, ctx := sandbox(b)
	for b.Loop() {
		if _, err := e.Exec(ctx, "one", brig.Command{Argv: []string{"/bin/true"}}, brig.IO{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExecPython(b *testing.B) {
	e, ctx := sandbox(b)
	for b.Loop() {
		if _, err := e.Exec(ctx, "one", brig.Command{Argv: []string{"python3", "-c", "print(6*7)"}}, brig.IO{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOutput streams 64 MiB of a program's output.
func BenchmarkOutput(b *testing.B) {
	e, ctx := sandbox(b)
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		cmd := brig.Command{Argv: []string{"head", "-c", "67108864", "/dev/zero"}}
		res, err := e.Exec(ctx, "one", cmd, brig.IO{Stdout: io.Discard})
		if err != nil || res.Stdout.Total != size {
			b.Fatal(res, err)
		}
	}
}
