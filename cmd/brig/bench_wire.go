//go:build bench

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

	"github.com/brig-run/brig/api/v1"
)

// send sends one request. The caller must close the response's body.
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
	req.Header.Set("Content-Type", v1.JSON)
	resp, err := g.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	var errBody v1.ErrorAnswer
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_ = json.Unmarshal(b, &errBody) // the status alone is sufficient
	return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, errBody.Error.Message), err)
}

// call sends one request and decodes the response into out, unless out is nil.
func (g *rig) call(method, path string, in, out any) error {
	resp, err := g.send(method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body) // read to the end, so that the connection can be reused
	if err == nil && out != nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		return fmt.Errorf("read answer of %s %s: %w", method, path, err)
	}
	return nil
}

// sendStream sends one request and calls on for each event of the response.
func (g *rig) sendStream(path string, in any, on func(event string, line []byte) error) error {
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
		var e v1.Event
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err == nil && e.Event == v1.EventError {
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

// runOneShot runs the program that all contenders run, and returns how its sandbox used the pool.
func (g *rig) runOneShot(limits *v1.Limits) (pool string, err error) {
	var out v1.RunAnswer
	in := v1.RunRequest{Language: "python", Code: benchProgram, Limits: limits}
	if err := g.call(http.MethodPost, "/v1/run", in, &out); err != nil {
		return "", err
	}
	if out.Stdout != benchOutput {
		return "", fmt.Errorf("brig printed %q, %v", out.Stdout, out.Error)
	}
	return out.Pool, nil
}

// rigTTL is the TTL of measured sandboxes. It is longer than any measurement.
const rigTTL = 4 * time.Hour

// create creates a persistent sandbox.
func (g *rig) create(freezeAfter time.Duration, env map[string]string) (*v1.Sandbox, error) {
	in := map[string]any{"ttl_ms": rigTTL.Milliseconds()}
	if env != nil {
		in["env"] = env
	}
	if freezeAfter > 0 {
		in["freeze_after_ms"] = freezeAfter.Milliseconds()
	}
	return g.createFrom(in)
}

// createFrom creates the persistent sandbox that a request describes.
func (g *rig) createFrom(in map[string]any) (*v1.Sandbox, error) {
	var out v1.Sandbox
	if err := g.call(http.MethodPost, "/v1/sandboxes", in, &out); err != nil {
		return nil, err
	}
	g.live.Add(1)
	return &out, nil
}

func (g *rig) remove(s *v1.Sandbox) error {
	g.live.Add(-1)
	return g.call(http.MethodDelete, "/v1/sandboxes/"+s.ID, nil, nil)
}

// runCode runs code in a sandbox's Python context, and checks the value of its
// last expression.
func (g *rig) runCode(s *v1.Sandbox, code, want string) error {
	got, err := g.runForValue(s, code)
	if err == nil && got != want {
		err = fmt.Errorf("the context answered %q", got)
	}
	return err
}

// runForValue runs code in a sandbox's Python context, and returns the value of its
// last expression.
func (g *rig) runForValue(s *v1.Sandbox, code string) (string, error) {
	var out v1.CodeAnswer
	if err := g.call(http.MethodPost, "/v1/sandboxes/"+s.ID+"/code", v1.CodeRequest{Code: code}, &out); err != nil {
		return "", err
	}
	if out.Error != nil {
		return "", fmt.Errorf("the context failed: %v", out.Error)
	}
	return out.Text, nil
}

// forEach calls f for every item, with as many concurrent calls as there are CPUs, and stops at the
// first error.
func forEach[T any](list []T, f func(T) error) error {
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
