package main

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// account finds the cgroup above the sandboxes, and has it stay: it counts
// what those that have ended used. For that there must be a sandbox.
func (g *rig) account() error {
	s, err := g.create(0, nil)
	if err != nil {
		return err
	}
	f, err := g.fleet()
	if err != nil {
		return err
	}
	if tree := f.trees[s.ID]; len(tree) > 1 {
		own := accountOf(tree[len(tree)-1])
		if keeper := path.Join(path.Dir(own), "bench"); path.Base(own) == s.ID && os.Mkdir(keeper, 0o700) == nil {
			g.group = path.Dir(own)
			g.undo = append(g.undo, func() {
				_ = unix.Rmdir(keeper) // it may be swept before
				_ = unix.Rmdir(g.group)
			})
		}
	}
	return g.remove(s)
}

// spent is the processor time so far of the server, its client and all
// sandboxes that there were.
func (g *rig) spent() time.Duration {
	sandboxes, _ := groupTime(g.group)
	return g.workbench.spent() + sandboxes
}

// settleTime is how long a pool may take to be full again.
const settleTime = 5 * time.Minute

// settle waits until the pool is full and all that has ended is gone.
func (g *rig) settle() error {
	for deadline := time.Now().Add(settleTime); ; time.Sleep(10 * time.Millisecond) {
		calm, err := g.calm()
		if err != nil || calm {
			time.Sleep(10 * time.Millisecond) // its last processes are waited for
			return err
		}
		if err := g.ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("the pool does not fill, or what has ended does not go")
		}
	}
}

// calm says whether nothing is being made or ended. It asks the engine itself,
// so as not to add to what is counted.
func (g *rig) calm() (bool, error) {
	shelves, err := g.engine.Pool(g.ctx)
	if err != nil {
		return false, err
	}
	waiting := 0
	for _, s := range shelves {
		if s.Making > 0 || s.Ready < s.Target {
			return false, nil
		}
		waiting += s.Ready
	}
	folders, err := os.ReadDir(filepath.Join(g.dir, "sandboxes"))
	return waiting >= g.warm && len(folders) == waiting+int(g.live.Load()), err
}

// calmTime is how long nothing has gone on before something is measured.
const calmTime = 50 * time.Millisecond

// measure measures what f says that it took, and the processor time until all
// is again as it was before.
func (g *rig) measure(f func() (time.Duration, error)) (sample, error) {
	if err := g.settle(); err != nil {
		return sample{}, err
	}
	time.Sleep(calmTime)
	before := g.spent()
	wall, err := f()
	if err == nil {
		err = g.settle()
	}
	return sample{wall, g.spent() - before}, err
}
