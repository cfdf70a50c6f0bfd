package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/brig-run/brig/door/wire"
)

// send makes one request. The caller closes the answer's body.
func (g *rig) send(method, path string, in any) (*http.Response, error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(g.ctx, method, g.url+path, &body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	req.Header.Set("Content-Type", wire.JSON)
	resp, err := g.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	var told wire.ErrorAnswer
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_ = json.Unmarshal(b, &told) // the status says enough
	return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, told.Error.Message), err)
}

// call makes one request and reads its answer into out, if it is to be read.
func (g *rig) call(method, path string, in, out any) error {
	resp, err := g.send(method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body) // to its end, so that the connection is kept
	if err == nil && out != nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		return fmt.Errorf("read answer of %s %s: %w", method, path, err)
	}
	return nil
}

// stream makes one request and calls on for each event of its answer.
func (g *rig) stream(path string, in any, on func(event string, line []byte) error) error {
	resp, err := g.send(http.MethodPost, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	r := bufio.NewReaderSize(resp.Body, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		var e wire.Event
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err == nil && e.Event == wire.EventError {
			err = fmt.Errorf("the server says: %s", line)
		}
		if err == nil {
			err = on(e.Event, line)
		}
		if err != nil {
			return fmt.Errorf("read stream: %w", err)
		}
	}
}

// oneShot runs the program that everyone runs, and returns where its sandbox
// came from.
func (g *rig) oneShot(limits *wire.Limits) (pool string, err error) {
	var out wire.RunAnswer
	in := wire.RunRequest{Language: "python", Code: benchProgram, Limits: limits}
	if err := g.call(http.MethodPost, "/v1/run", in, &out); err != nil {
		return "", err
	}
	if out.Stdout != benchOutput {
		return "", fmt.Errorf("brig printed %q, %v", out.Stdout, out.Error)
	}
	return out.Pool, nil
}

// rigTTL is the lease of sandboxes that are measured: longer than that takes.
const rigTTL = 4 * time.Hour

// create makes a sandbox that stays.
func (g *rig) create(freezeAfter time.Duration, env map[string]string) (*wire.Sandbox, error) {
	in := map[string]any{"ttl_ms": rigTTL.Milliseconds(), "env": env}
	if freezeAfter > 0 {
		in["freeze_after_ms"] = freezeAfter.Milliseconds()
	}
	var out wire.Sandbox
	if err := g.call(http.MethodPost, "/v1/sandboxes", in, &out); err != nil {
		return nil, err
	}
	g.live.Add(1)
	return &out, nil
}

func (g *rig) remove(s *wire.Sandbox) error {
	g.live.Add(-1)
	return g.call(http.MethodDelete, "/v1/sandboxes/"+s.ID, nil, nil)
}

// code runs code in a sandbox's Python context, and checks the value of its
// last expression.
func (g *rig) code(s *wire.Sandbox, code, want string) error {
	var out wire.CodeAnswer
	if err := g.call(http.MethodPost, "/v1/sandboxes/"+s.ID+"/code", wire.CodeRequest{Code: code}, &out); err != nil {
		return err
	}
	if out.Text != want {
		return fmt.Errorf("the context answered %q, %v", out.Text, out.Error)
	}
	return nil
}

// each calls f for every item, as many at once as there are processors, and
// stops at the first error.
func each[T any](list []T, f func(T) error) error {
	items := make(chan T)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var work sync.WaitGroup
	for range runtime.NumCPU() {
		work.Go(func() {
			for item := range items {
				if err := f(item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, item := range list {
		select {
		case items <- item:
		case <-ctx.Done():
		}
	}
	close(items)
	work.Wait()
	return context.Cause(ctx)
}
