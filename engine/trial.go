package engine

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// trialTime bounds a trial.
const trialTime = 30 * time.Second

// trials run a real program in a fresh sandbox of the image host now and then,
// so that a provider that is broken is known before somebody needs it. While
// callers wait for machines none is made for this: they are the proof.
func (e *Engine) trials() {
	if e.Trial <= 0 || e.home() == nil {
		return
	}
	e.every(e.Trial, func() {
		if e.capacity.busy() || e.capacity.room() != nil {
			return
		}
		at := e.home()
		begin := time.Now()
		err := e.try(e.ctx, at)
		if e.ctx.Err() != nil {
			return
		}
		if err != nil {
			e.Log.Error("a trial of a provider failed", "provider", at.id, "err", err)
		}
		e.Observer.Tried(at.id, time.Since(begin), err)
	})
}

// try makes a machine, has it work something out, and ends it. Like one
// that waits in the pool it is on no record: it ends with this server.
func (e *Engine) try(ctx context.Context, at *member) (err error) {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	limits, err := e.Bounds.Fill(brig.Limits{})
	if err != nil {
		return err
	}
	img, err := e.resolve(ctx, brig.HostImage)
	if err != nil {
		return err
	}
	id, begin := newID(), time.Now()
	spec := brig.Spec{Name: newName("trial-"), Image: img.Digest, Limits: limits, Ephemeral: true, Blank: true, TTL: 2 * trialTime}
	in, err := at.provider.Create(ctx, id, spec, e.Now().Add(2*trialTime))
	if e.made(at.id, brig.MadeTrial, begin, err); err != nil {
		return err
	}
	defer e.destroy(ctx, id, in)
	var out bytes.Buffer
	cmd := brig.Command{Argv: []string{"echo", string(id)}, Dir: "/", Timeout: trialTime / 2}
	res, err := in.Exec(ctx, newExecID(), cmd, brig.IO{Stdout: &out, Stderr: &out})
	switch {
	case err != nil:
		return err
	case res.ExitCode != 0 || strings.TrimSpace(out.String()) != string(id):
		return fmt.Errorf("echo exits with %d and says %q", res.ExitCode, brig.Clip(out.String(), 80))
	}
	return nil
}
