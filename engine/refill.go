package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/interpreter"
)

const (
	// refillEvery is how often the pool looks what is missing without a claim.
	refillEvery = 5 * time.Second
	// refillDelay is how long after a claim the pool looks what is missing, and
	// refillStays how long after one of a sandbox that stays: whoever created it
	// is about to have a first command run, and that comes first as well.
	refillDelay = 10 * time.Millisecond
	refillStays = 60 * time.Millisecond
	// refillTime bounds the making of one machine.
	refillTime = 60 * time.Second
	// waitTTL is the lease of a machine that waits; the tether to this server
	// is what ends it.
	waitTTL = 30 * 24 * time.Hour
)

// run keeps the pool filled until ctx ends.
func (p *pool) run(ctx context.Context) {
	if p.Memory == 0 {
		return
	}
	p.expect(ctx)
	// The other half of the processors is for those who do not wait.
	slots := make(chan struct{}, max(runtime.NumCPU()/2, 1))
	tick := time.NewTicker(refillEvery)
	defer tick.Stop()
	for {
		p.trim()
		for !p.e.capacity.busy() && p.e.capacity.room() == nil {
			s := p.missing()
			if s == nil {
				break
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				p.made(s, 0, ctx.Err(), nil)
				return
			}
			p.e.work.Go(func() {
				defer func() { <-slots; p.poke() }()
				p.refill(ctx, s)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-tick.C:
			p.expect(ctx)
		}
	}
}

// expect sets how many of which kinds are asked for at all times. A name may
// mean another image by now.
func (p *pool) expect(ctx context.Context) {
	least := map[kind]int{}
	for _, w := range p.Warm {
		k, err := p.kindOf(ctx, w)
		if err != nil {
			p.e.Log.WarnContext(ctx, "keep sandboxes ready", "image", w.Image, "err", err)
			continue
		}
		least[k] = max(least[k], w.Count)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shelves {
		s.least = 0
	}
	for k, n := range least {
		p.shelf(k).least = n
	}
}

func (p *pool) kindOf(ctx context.Context, w Warm) (kind, error) {
	limits, err := p.e.Bounds.Fill(w.Limits)
	if err != nil {
		return kind{}, err
	}
	img, err := p.e.resolve(ctx, w.Image)
	if err != nil {
		return kind{}, err
	}
	return kind{img.Digest, w.Language, limits}.shelved(), nil
}

// target is how many of a kind should wait. The caller holds p.mu.
func (p *pool) target(s *shelf, now time.Time) int {
	return min(max(s.least, s.demand.peak(now)), p.Most)
}

// missing picks the shelf that is the furthest behind, and counts one as
// being made; nil when all is well or there is no room.
func (p *pool) missing() *shelf {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, used := p.e.Now(), int64(0)
	var worst *shelf
	gap := 0.0
	for _, s := range p.shelves {
		used += int64(len(s.ready)+s.making) * p.Each
		want := p.target(s, now)
		have := len(s.ready) + s.making
		if g := float64(want-have) / float64(max(want, 1)); g > gap && now.After(s.pause) {
			worst, gap = s, g
		}
	}
	if worst == nil || p.closed || used+p.Each > p.Memory {
		return nil
	}
	worst.making++
	return worst
}

// trim ends what is not wanted any more, and forgets shelves that nobody has
// asked for in a long time.
func (p *pool) trim() {
	p.mu.Lock()
	now := p.e.Now()
	var out []*waiting
	for k, s := range p.shelves {
		if n := len(s.ready) - p.target(s, now); n > 0 {
			out = append(out, s.ready[:n]...) // the oldest
			s.ready = append([]*waiting(nil), s.ready[n:]...)
		}
		if len(s.ready)+s.making+s.least == 0 && s.demand.peak(now) == 0 {
			delete(p.shelves, k)
		}
	}
	p.mu.Unlock()
	p.end(out)
}

// refill makes one machine for a shelf.
func (p *pool) refill(ctx context.Context, s *shelf) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, refillTime)
	defer cancel()
	w, err := p.make(ctx, s.kind)
	if err == nil && p.stays(s) {
		p.rehearse(ctx, w)
	}
	if err != nil && ctx.Err() == nil {
		p.e.Log.ErrorContext(ctx, "make a sandbox ahead of time", "image", s.image, "language", s.language, "err", err)
	}
	p.made(s, time.Since(start), err, w)
}

// made counts one that was being made, and puts it where it can be claimed:
// at every moment it is counted once.
func (p *pool) made(s *shelf, took time.Duration, err error, w *waiting) {
	p.mu.Lock()
	s.making--
	if err != nil {
		s.failed++
		s.backoff = min(max(2*s.backoff, time.Second), time.Minute)
		s.pause = p.e.Now().Add(s.backoff)
		p.mu.Unlock()
		return
	}
	s.backoff = 0
	if s.refills = append(s.refills, took); len(s.refills) > 32 {
		s.refills = s.refills[1:]
	}
	gone := p.closed || p.shelves[s.kind] != s
	if !gone {
		s.ready = append(s.ready, w)
	}
	p.mu.Unlock()
	if gone {
		p.end([]*waiting{w})
		return
	}
	p.watch(s, w)
}

// watch ends a machine that dies while it waits.
func (p *pool) watch(s *shelf, w *waiting) {
	p.e.work.Go(func() {
		select {
		case <-p.e.ctx.Done():
		case <-w.in.Done():
			// If it was claimed meanwhile, its end is somebody else's.
			if p.take(s, w) {
				p.e.Observer.Restarted(p.e.homeID, "sandbox")
				p.end([]*waiting{w})
				p.poke()
			}
		}
	})
}

// take takes one machine from its shelf, if it is still there.
func (p *pool) take(s *shelf, w *waiting) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range []*[]*waiting{&s.ready, &s.dead} {
		if i := slices.Index(*list, w); i >= 0 {
			*list = slices.Delete(slices.Clone(*list), i, i+1)
			return true
		}
	}
	return false
}

// make makes a machine that nobody owns, with an interpreter that waits.
func (p *pool) make(ctx context.Context, k kind) (_ *waiting, err error) {
	prefix := "sandbox-"
	lang, known := interpreter.Lookup(k.language)
	if known {
		prefix = lang.Prefix
	}
	limits := k.limits
	limits.Output = p.e.Bounds.Default.Output
	spec := brig.Spec{Name: newName(prefix), Image: k.image, Limits: limits, Ephemeral: true, Blank: true, TTL: waitTTL}
	if img, err := p.e.Options.Images.Resolve(ctx, k.image); err == nil {
		spec.Env = withImage(img, nil) // its interpreter has it as any other
	}
	w := &waiting{id: newID(), name: spec.Name}
	at, begin := p.e.home(), time.Now()
	w.in, err = at.provider.Create(ctx, w.id, spec, p.e.Now().Add(waitTTL))
	if p.e.made(at.id, brig.MadePool, begin, err); err != nil {
		return nil, err
	}
	failpoint.Hit("pool.made")
	defer func() {
		if err != nil {
			p.e.discard(ctx, w.id, w.in)
		}
	}()
	p.e.seeOnce(ctx, p.e.home(), w.in, k.image, spec)
	if !known {
		return w, nil
	}
	if w.session, err = open(ctx, w.in, "interpreter", lang, brig.Command{}); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { w.session.Close() })()
	if err = w.session.Warm(); err != nil {
		w.session.Close()
		return nil, errors.Join(fmt.Errorf("warm up: %w", err), context.Cause(ctx))
	}
	failpoint.Hit("pool.warmed")
	return w, nil
}

// open starts an interpreter in a machine.
func open(ctx context.Context, in brig.Instance, id string, lang interpreter.Language, cmd brig.Command) (*interpreter.Session, error) {
	if len(lang.Files) > 0 {
		if err := in.Put(ctx, interpreter.Dir, lang.Files); err != nil {
			return nil, err
		}
	}
	cmd.Argv = lang.Argv
	proc, err := in.Start(ctx, id, cmd, brig.Streams{Channel: true})
	if err != nil {
		return nil, err
	}
	s, err := interpreter.Open(ctx, proc)
	if err != nil {
		proc.Close()
		return nil, err
	}
	return s, nil
}
