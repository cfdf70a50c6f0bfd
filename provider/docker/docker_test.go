package docker

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/guest/wire"
)

// TestExitReason verifies that the engine and the server determine why a
// sandbox ended. The exit code comes from the guest, and is used only if it is
// plausible.
func TestExitReason(t *testing.T) {
	now := time.Now()
	over, later := order{Lease: now.Add(-time.Second)}, order{Lease: now.Add(time.Hour)}
	main := order{Lease: now.Add(time.Hour), Main: true}
	isTethered := order{Lease: now.Add(time.Hour), Ephemeral: true}
	lingers := order{Lease: now.Add(time.Hour), Main: true, Lingers: true}
	three, zero := 3, 0
	for name, c := range map[string]struct {
		e      ending
		o      order
		known  bool
		a      *endRequest
		code   int
		reason brig.ExitReason
	}{
		"lease":                       {ending{Code: wire.ExitLease}, over, true, nil, 137, brig.LeaseExpired},
		"a lease that is not over":    {ending{Code: wire.ExitLease}, later, true, nil, wire.ExitLease, brig.Crashed},
		"a main program says so":      {ending{Code: wire.ExitLease}, main, true, nil, wire.ExitLease, brig.Exited},
		"tether":                      {ending{Code: wire.ExitTether}, isTethered, true, nil, 137, brig.HungUp},
		"an invalid tether":           {ending{Code: wire.ExitTether}, later, true, nil, wire.ExitTether, brig.Crashed},
		"stopped":                     {ending{}, later, true, &endRequest{Reason: brig.Stopped}, 137, brig.Stopped},
		"stopped with a main program": {ending{Code: 3}, main, true, &endRequest{Reason: brig.Stopped}, 3, brig.Stopped},
		"memory":                      {ending{Code: 1, OOMKilled: true}, main, true, &endRequest{Reason: brig.Killed}, 137, brig.OutOfMem},
		"main":                        {ending{}, main, true, nil, 0, brig.Exited},
		"main, outlived":              {ending{Code: 137}, lingers, true, &endRequest{brig.Exited, &three}, 3, brig.Exited},
		"main, outlived, 0":           {ending{Code: 137}, lingers, true, &endRequest{brig.Exited, &zero}, 0, brig.Exited},
		"an agent that lingered died": {ending{}, lingers, true, nil, 137, brig.Crashed},
		"the agent died":              {ending{Code: 2}, later, true, nil, 2, brig.Crashed},
		"the container is gone":       {ending{Code: 137}, main, false, nil, 137, brig.Crashed},
	} {
		c.e.At = now
		if got := c.e.exitReason(c.o, c.known, c.a); got.Reason != c.reason || got.Code != c.code {
			t.Errorf("%s: %+v, want %s and %d", name, got, c.reason, c.code)
		}
	}
}

// TestFailedExecKeepsSandbox verifies that a sandbox does not end if a command
// could not be started. An engine that does not respond for a moment must not
// end the sandbox.
func TestFailedExecKeepsSandbox(t *testing.T) {
	api, err := client.New(client.WithHost("unix://" + t.TempDir() + "/none"))
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	p := &Provider{Options: Options{DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, api: api}
	i := newInstance(p, "x", order{Container: "c"})
	i.Guest = guest.Guest{Dial: i.dial}
	if err := os.MkdirAll(i.f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Exec(t.Context(), "e", brig.Command{Argv: []string{"true"}}, brig.IO{}); brig.KindOf(err) != brig.Unavailable {
		t.Errorf("%v", err)
	}
	if ok, err := i.f.read(endRequestFile, new(endRequest)); ok || err != nil {
		t.Errorf("its end was asked for: %v, %v", ok, err)
	}
}

// TestCanceledCreateRemovesContainer verifies that a container that the engine creates after
// its caller has disconnected is removed.
func TestCanceledCreateRemovesContainer(t *testing.T) {
	endRequest, removed := make(chan struct{}), make(chan struct{})
	engine := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/create"):
			close(endRequest)
			time.Sleep(200 * time.Millisecond) // an engine completes a creation that it has started
			w.WriteHeader(http.StatusCreated)
		case r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/containers/made"):
			close(removed)
		}
		_, _ = io.WriteString(w, `{"Id": "made"}`)
	}))
	socket := filepath.Join(t.TempDir(), "engine")
	var err error
	if engine.Listener, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	engine.Start()
	defer engine.Close()
	api, err := client.New(client.WithHost("unix://" + socket))
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	p := &Provider{Options: Options{DataDir: t.TempDir(), Storage: storageMemory}, api: api}
	p.populated.Store(true)
	if err := os.MkdirAll(filepath.Dir(p.folder("x").dir), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-endRequest; cancel() }()
	if _, err := p.Create(ctx, "x", brig.Spec{Image: "img", Limits: brig.DefaultLimitRange().Default}, time.Now().Add(time.Minute)); err == nil {
		t.Error("it was made for nobody")
	}
	select {
	case <-removed:
	case <-time.After(30 * time.Second):
		t.Error("it is still there")
	}
}

// TestTmpfsSizesFitLimits verifies that the tmpfs mounts fit into both the
// disk limit and the memory limit, even if the limits are small.
func TestTmpfsSizesFitLimits(t *testing.T) {
	for _, l := range []brig.Limits{
		{Memory: 32 * brig.MiB, Disk: brig.GiB}, {Memory: brig.GiB, Disk: 8 * brig.MiB}, {Memory: 512 * brig.MiB, Disk: brig.GiB}, {Memory: 64 * brig.GiB, Disk: 3 * brig.MiB},
	} {
		total := int64(0)
		for dir, options := range tmpfsSizes(l) {
			size := int64(-1)
			for o := range strings.SplitSeq(options, ",") {
				if v, ok := strings.CutPrefix(o, "size="); ok {
					size, _ = strconv.ParseInt(v, 10, 64)
				}
			}
			if size <= 0 {
				t.Errorf("%s has no size: %q", dir, options)
			}
			total += size
		}
		if total > l.Disk || total > l.Memory/2 {
			t.Errorf("%+v: %d bytes", l, total)
		}
	}
}

// TestDeviationsLowerEnforcement verifies that each deviation of a container
// lowers the reported enforcement of its area, and of no other area.
func TestDeviationsLowerEnforcement(t *testing.T) {
	p := &Provider{info: system.Info{MemoryLimit: true, SwapLimit: true, CPUCfsQuota: true, PidsLimit: true, SecurityOptions: []string{"name=seccomp,profile=default"}}}
	p.Storage, p.Host = storageMemory, "unix:///x"
	p.enforcement = p.enforces()
	o := order{Limits: brig.DefaultLimitRange().Default}
	fine := func() container.InspectResponse {
		return container.InspectResponse{
			State: &container.State{Running: true, Pid: 7}, HostConfig: p.hardened(o),
			Mounts: []container.MountPoint{{Type: mount.TypeVolume, Destination: agentDir}},
		}
	}
	level := func(c container.InspectResponse, a brig.Area) brig.Level { return p.inspectEnforcement(c, o)[a].Level }
	linked := o
	linked.Uplink = true
	for _, o := range []order{o, linked} {
		deviating := fine()
		deviating.HostConfig = p.hardened(o)
		for a, e := range p.inspectEnforcement(deviating, o) {
			if e.Level != p.enforcement[a].Level {
				t.Errorf("%s of a container as it ought to be is %s: %v", a, e.Level, e.Gaps)
			}
		}
	}
	for name, c := range map[string]struct {
		area   brig.Area
		change func(*container.InspectResponse)
	}{
		"privileged":          {brig.AreaIsolation, func(c *container.InspectResponse) { c.HostConfig.Privileged = true }},
		"a capability":        {brig.AreaIsolation, func(c *container.InspectResponse) { c.HostConfig.CapAdd = append(c.HostConfig.CapAdd, "SYS_ADMIN") }},
		"a link's capability": {brig.AreaIsolation, func(c *container.InspectResponse) { c.HostConfig.CapAdd = append(c.HostConfig.CapAdd, "CAP_"+linkCap) }},
		"a link's device":     {brig.AreaIsolation, func(c *container.InspectResponse) { c.HostConfig.Devices = p.hardened(linked).Devices }},
		"a device's rule":     {brig.AreaIsolation, func(c *container.InspectResponse) { c.HostConfig.DeviceCgroupRules = []string{"b *:* rwm"} }},
		"host pids":           {brig.AreaIsolation, func(c *container.InspectResponse) { c.HostConfig.PidMode = "host" }},
		"a bind":              {brig.AreaIsolation, func(c *container.InspectResponse) { c.Mounts = append(c.Mounts, container.MountPoint{Type: "bind"}) }},
		"swap":                {brig.AreaMemory, func(c *container.InspectResponse) { c.HostConfig.MemorySwap = -1 }},
		"memory":              {brig.AreaMemory, func(c *container.InspectResponse) { c.HostConfig.Memory++ }},
		"processors":          {brig.AreaCPUs, func(c *container.InspectResponse) { c.HostConfig.NanoCPUs = 0 }},
		"processes":           {brig.AreaProcesses, func(c *container.InspectResponse) { c.HostConfig.PidsLimit = nil }},
		"root":                {brig.AreaDisk, func(c *container.InspectResponse) { c.HostConfig.ReadonlyRootfs = false }},
		"network":             {brig.AreaEgress, func(c *container.InspectResponse) { c.HostConfig.NetworkMode = "bridge" }},
	} {
		deviating := fine()
		c.change(&deviating)
		if got := level(deviating, c.area); got != brig.LevelNone {
			t.Errorf("%s: %s is %s", name, c.area, got)
		}
	}
	disk := fine()
	disk.HostConfig = p.hardened(linked)
	disk.HostConfig.Devices = append(disk.HostConfig.Devices, container.DeviceMapping{PathOnHost: "/dev/sda", PathInContainer: tunDevice})
	if e := p.inspectEnforcement(disk, linked)[brig.AreaIsolation]; e.Level != brig.LevelNone {
		t.Errorf("with a disk in the device's place isolation is %s", e.Level)
	}
	unconfined := fine()
	unconfined.HostConfig.SecurityOpt = []string{"seccomp=unconfined"}
	if e := p.inspectEnforcement(unconfined, o)[brig.AreaIsolation]; len(e.Gaps) <= len(p.enforcement[brig.AreaIsolation].Gaps) {
		t.Errorf("nothing is said of a container without a profile: %v", e.Gaps)
	}
}

// TestLinkDevice verifies that only a sandbox that may need a network link has
// the device and the capability for the link.
func TestLinkDevice(t *testing.T) {
	rules := brig.Egress{Rules: []brig.EgressRule{{Host: "example.com"}}}
	for name, c := range map[string]struct {
		gvisor bool
		spec   brig.Spec
		want   bool
	}{
		"no rules": {false, brig.Spec{}, false}, "rules": {false, brig.Spec{Egress: rules}, true},
		"nobody's yet": {false, brig.Spec{Blank: true}, true}, "gVisor": {true, brig.Spec{}, true},
	} {
		p := &Provider{gvisor: c.gvisor}
		if got := p.mayLink(c.spec); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		h := p.hardened(order{Uplink: c.want})
		if has := slices.Contains(h.CapAdd, linkCap); has != c.want || (len(h.Devices) > 0) != (c.want && !c.gvisor) {
			t.Errorf("%s: %v, %v", name, h.CapAdd, h.Devices)
		}
	}
	i := newInstance(&Provider{}, "x", order{})
	if _, err := i.Uplink(t.Context(), nil); brig.KindOf(err) != brig.FailedPrecondition || brig.AsError(err).Field != "egress" {
		t.Errorf("an uplink of one without: %v", err)
	}
}

// TestParseTrust verifies that the certificates of an image are copied
// unchanged, up to the size limit.
func TestParseTrust(t *testing.T) {
	pack := func(all ...tar.Header) *tar.Reader {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range all {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		return tar.NewReader(&b)
	}
	got, err := parseTrust(pack(
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "./a.pem", Typeflag: tar.TypeReg, Mode: 0o4777, Size: 3},
		tar.Header{Name: "./b.0", Typeflag: tar.TypeSymlink, Linkname: "a.pem"}, tar.Header{Name: "./c.pem", Typeflag: tar.TypeLink, Linkname: "./a.pem"},
		tar.Header{Name: "./d", Typeflag: tar.TypeFifo}, tar.Header{Name: "../e", Typeflag: tar.TypeReg}, tar.Header{Name: "./java", Typeflag: tar.TypeDir},
	))
	var list []string
	for _, x := range got {
		list = append(list, fmt.Sprintf("%s %s %o %s%s", x.Path, x.Type, x.Mode, x.Target, x.data))
	}
	if want := "a.pem file 755 xxx, b.0 symlink 0 a.pem, c.pem file 0 xxx, java directory 0 "; err != nil || strings.Join(list, ", ") != want {
		t.Errorf("%v, %v; want %s", list, err, want)
	}
	for name, h := range map[string]tar.Header{
		"one":  {Name: "big", Typeflag: tar.TypeReg, Size: maxTrust + 1},
		"many": {Name: "small", Typeflag: tar.TypeSymlink, Linkname: "x"},
	} {
		all := []tar.Header{h}
		if name == "many" {
			all = slices.Repeat(all, maxTrust/512+1)
		}
		if _, err := parseTrust(pack(all...)); err == nil {
			t.Errorf("%s: it is not too large", name)
		}
	}
}

func TestOptions(t *testing.T) {
	for field, o := range map[string]Options{
		"storage": {Storage: "tape"}, "pull": {Pull: "often"}, "prefix": {Prefix: "A/b"}, "agent": {},
	} {
		if field != "agent" {
			o.Agent = []byte("x")
		}
		if e := brig.AsError(o.check()); e == nil || e.Field != field || e.Hint == "" {
			t.Errorf("%s: %v", field, e)
		}
	}
	if err := (Options{Agent: []byte("x")}).check(); err != nil {
		t.Error(err)
	}
}

func TestAccountOf(t *testing.T) {
	for user, want := range map[string][2]string{
		"": {"", ""}, "root": {"root", ""}, "0:0": {"root", ""}, "1000": {"user", ""}, "101:102": {"user", "101:102"},
		"101": {"user", "101:101"}, "64999": {"user", ""}, "101:64999": {"user", ""}, "www-data": {"user", ""}, "99999999": {"user", ""}, "-1": {"user", ""},
		"00": {"user", ""}, "00:5": {"user", ""}, "101:": {"user", "101:101"}, "007": {"user", "7:7"}, "101:x": {"user", ""}, "1:2:3": {"user", ""},
	} {
		if name, account := accountOf(user); name != want[0] || account != want[1] {
			t.Errorf("%q: %q, %q", user, name, account)
		}
	}
}

// FuzzRelayed checks that the reader of an exec's stream never returns more
// data than the engine sent.
func FuzzRelayed(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 2, 'h', 'i', 2, 0, 0, 0, 0, 0, 0, 1, '!', 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		messageBytes := 0
		c := &execStream{r: bufio.NewReader(bytes.NewReader(b)), onMessage: func(s string) { messageBytes += len(s) }}
		n, _ := io.Copy(io.Discard, c)
		if int(n)+messageBytes > len(b) {
			t.Errorf("%d bytes came of %d", int(n)+messageBytes, len(b))
		}
	})
}

// FuzzEntry checks that the reader of the engine's log never returns more data
// than the engine sent.
func FuzzEntry(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x232026-11-21T23:00:00.123456789Z line\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for r := bytes.NewReader(b); ; {
			at, text, err := entry(r)
			if err != nil {
				return
			}
			if at.IsZero() && len(text) > len(b) {
				t.Errorf("%d bytes came of %d", len(text), len(b))
			}
		}
	})
}
