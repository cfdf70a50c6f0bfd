package agent

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// probeTimeout is the timeout for all connections and lookups of a probe together.
const probeTimeout = 2 * time.Second

// probeMain is the main function of a probe. It inspects the sandbox as the
// current user, and does not change the sandbox. It returns the exit code.
func probeMain(args []string) int {
	var look wire.Look
	if len(args) > 0 && json.Unmarshal([]byte(args[0]), &look) != nil {
		os.Stderr.WriteString("brig-agent: that is nothing to look for\n")
		return 2
	}
	p := readPosture()
	probeTargets(&p, look)
	if err := json.NewEncoder(os.Stdout).Encode(p); err != nil {
		os.Stderr.WriteString("brig-agent: " + err.Error() + "\n")
		return 1
	}
	return 0
}

// readPosture returns the security state that this process can observe.
func readPosture() wire.Posture {
	p := wire.Posture{UID: os.Getuid(), Kernel: readFirstLine("/proc/version")}
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		if strings.HasPrefix(k, "Cap") {
			set, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			if err != nil {
				set = 1 << 63 // do not report an unreadable set as empty
			}
			p.Capabilities |= set
		}
	}
	for c := uintptr(0); c < 63; c++ { // the status file may omit the bounding set
		if has, known := isInBoundingSet(c); has && known {
			p.Capabilities |= 1 << c
		}
	}
	const prGetNoNewPrivs = 39
	is, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prGetNoNewPrivs, 0, 0)
	p.NoNewPrivs = errno == 0 && is == 1
	p.Writable = writableMounts()
	var fs syscall.Statfs_t
	if syscall.Statfs("/", &fs) == nil {
		p.Disk = int64(fs.Blocks) * fs.Bsize
	}
	p.Processes, p.OpenFiles = readHardLimit(rlimitNproc), readHardLimit(syscall.RLIMIT_NOFILE)
	if list, err := net.Interfaces(); err == nil {
		for _, i := range list {
			if i.Flags&net.FlagLoopback == 0 {
				p.Interfaces = append(p.Interfaces, i.Name)
			}
		}
	}
	return p
}

// isInMemory reports whether a file system is independent of the host's files. The root is an
// overlay whose upper layer belongs to the sandbox.
func isInMemory(kind string) bool {
	switch kind {
	case "overlay", "tmpfs", "dev", "devtmpfs", "devpts", "proc", "sysfs", "cgroup", "cgroup2", "mqueue":
		return true
	}
	return false
}

// writableMounts lists the writable mounts of files from outside the sandbox.
func writableMounts() (out []string) {
	b, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(b)) {
		w := strings.Fields(line)
		if len(w) < 4 || isInMemory(w[2]) || strings.HasPrefix(w[3]+",", "ro,") {
			continue
		}
		out = append(out, w[1])
	}
	return out
}

func readHardLimit(resource int) uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(resource, &l) != nil {
		return 1<<64 - 1
	}
	return l.Max
}

func readFirstLine(name string) string {
	b, _ := os.ReadFile(name)
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// probeTargets concurrently makes all connections and lookups of look.
func probeTargets(p *wire.Posture, look wire.Look) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	var (
		work sync.WaitGroup
		mu   sync.Mutex // guards p
	)
	p.Failed = map[string]string{}
	note := func(to *[]string, what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			p.Failed[what] = err.Error()
			return
		}
		*to = append(*to, what)
	}
	for _, address := range look.Dial {
		work.Go(func() {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				c.Close()
			}
			note(&p.Reached, address, err)
		})
	}
	for _, name := range look.Resolve {
		work.Go(func() {
			_, err := new(net.Resolver).LookupHost(ctx, name)
			note(&p.Resolved, name, err)
		})
	}
	work.Wait()
}
