package providertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// asRoot runs a script as root, and fails the test if the script fails.
func asRoot(t *testing.T, in brig.Instance, text string) string {
	t.Helper()
	a := run(t, in, brig.Command{Shell: text, User: "root"})
	if a.ExitCode != 0 {
		t.Fatalf("%s: exit code %d: %s%s", text, a.ExitCode, a.out, a.err)
	}
	return a.out
}

// testUplinkPaused checks that a paused instance keeps its network link, and
// that the link ends with the instance.
func testUplinkPaused(t *testing.T, h Harness) {
	_, in := create(t, h, withRules)
	up := uplink(t, in, "")
	ended := serve(up, "one\n")
	if err := in.Pause(t.Context()); err != nil {
		if brig.KindOf(err) == brig.Unimplemented {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	packet := question().reply(strings.Repeat("x", 60000)).packet()
	for range 500 { // more packets than all queues hold
		if err := up.Send(packet); err != nil {
			t.Fatalf("send to one that is frozen: %v", err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended with the freeze: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := in.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, h, run(t, in, questionCommand(h)), "one\n")
	if err := in.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := in.Stop(t.Context(), 0, brig.Killed); err != nil {
		t.Fatal(err)
	}
	checkEnded(t, ended)
}

// testUplinkLarge checks that the largest possible packets pass in both
// directions without fragmentation.
func testUplinkLarge(t *testing.T, h Harness) {
	_, in := create(t, h, withRules)
	up := uplink(t, in, "")
	const largest = brig.UplinkMTU - 28
	got := make(chan string, 1)
	go func() {
		b := make([]byte, brig.UplinkMTU)
		n, err := up.Receive(b)
		d, ok := parseDatagram(b[:n])
		if err != nil || !ok || len(d.payload) != largest {
			got <- fmt.Sprintf("%d bytes, %v, a payload of %d", n, err, len(d.payload))
			return
		}
		if err := up.Send(d.reply(d.payload).packet()); err != nil {
			got <- err.Error()
			return
		}
		got <- ""
	}()
	a := run(t, in, script(fmt.Sprintf(`exec 3<>/dev/udp/%s/9; head -c %d /dev/urandom >/tmp/sent
		dd bs=%d iflag=fullblock count=1 </tmp/sent >&3 2>/dev/null; timeout 8 dd bs=65536 count=1 <&3 2>/dev/null >/tmp/got; cmp /tmp/sent /tmp/got && wc -c </tmp/got`,
		brig.UplinkGateway, largest, largest)))
	if problem := <-got; problem != "" || strings.TrimSpace(a.out) != fmt.Sprint(largest) {
		t.Errorf("sent: %s; received: %q %q", problem, a.out, a.err)
	}
}

const (
	authorityOne = "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
	authorityTwo = "-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n"
	bundle       = "/etc/ssl/certs/ca-certificates.crt"
	alone        = "/etc/ssl/certs/brig.pem"
)

func testUplinkSettings(t *testing.T, h Harness) {
	_, in := create(t, h, withRules)
	before := asRoot(t, in, "touch "+bundle+"; cat "+bundle)
	uplink(t, in, "")
	if got := asRoot(t, in, "cat "+bundle+"; ls "+alone+" 2>/dev/null || true"); got != before {
		t.Error("without an authority what is trusted has changed")
	}
	uplink(t, in, authorityOne)
	uplink(t, in, authorityOne)
	if got := asRoot(t, in, "cat "+bundle); got != before+authorityOne {
		t.Errorf("%d bytes are trusted, were %d: it ends in %q", len(got), len(before), got[max(0, len(got)-200):])
	}
	uplink(t, in, authorityTwo)
	for _, c := range []struct{ what, script, want string }{
		{"what is trusted", fmt.Sprint("tail -c ", len(authorityOne+authorityTwo), " ", bundle), authorityOne + authorityTwo},
		{"the authority", "cat " + alone, authorityTwo},
		{"who resolves names", "grep ^nameserver /etc/resolv.conf", "nameserver 198.18.0.1\n"},
		{"whose they are", "stat -c '%f %u %g' /etc/resolv.conf " + bundle + " " + alone, strings.Repeat("81a4 0 0\n", 3)},
		{"what is left beside them", "ls -A /etc /etc/ssl/certs | grep brig-", ""},
		{"addresses of IPv6", "grep -c eth0 /proc/net/if_inet6", "0\n"},
	} {
		if a := run(t, in, script(c.script)); a.out != c.want {
			t.Errorf("%s: %q, want %q", c.what, a.out, c.want)
		}
	}
}

// testUplinkHostileFiles checks that a program that replaces the files that
// Uplink writes can break only the network link of its own sandbox.
func testUplinkHostileFiles(t *testing.T, h Harness) {
	_, in := create(t, h, withRules)
	const victim, kept = "/var/tmp/victim", "/var/tmp/bundle"
	files := []string{bundle, alone}
	if !h.ReadOnlyImage { // in a read-only image, programs cannot replace the file
		files = append(files, "/etc/resolv.conf")
	}
	asRoot(t, in, "touch "+bundle+"; cp -a "+bundle+" "+kept+"; echo mine >"+victim+"; chmod 600 "+victim)
	for _, file := range files {
		for _, c := range []struct {
			name, script string
			works        bool
		}{
			{"fifo", "mkfifo %s", file != bundle},
			{"directory", "mkdir -p %s/x", false},
			{"link to a file", "ln -s " + victim + " %s", file != bundle},
			{"link to nothing", "ln -s /nowhere/else %s", true},
			{"link to itself", "ln -s %[1]s %[1]s", file != bundle},
			{"link to a process", "ln -s /proc/1/environ %s", file != bundle},
			{"link to a device", "ln -s /dev/zero %s", file != bundle},
			{"nothing", "true %s", true},
		} {
			asRoot(t, in, "rm -rf "+file+"; "+fmt.Sprintf(c.script, file))
			start := time.Now()
			up, err := in.Uplink(t.Context(), []byte(authorityOne))
			if d := time.Since(start); d > promptTimeout {
				t.Errorf("%s for %s: it took %v", c.name, file, d)
			}
			switch {
			case c.works != (err == nil):
				t.Errorf("%s for %s: %v", c.name, file, err)
			case err == nil:
				if got := asRoot(t, in, "stat -c %f "+file); got != "81a4\n" {
					t.Errorf("%s for %s: what is there has mode %s", c.name, file, got)
				}
				if err := up.Close(); err != nil {
					t.Error(err)
				}
			default:
				unreachable(t, h, in)
			}
			if got := asRoot(t, in, "cat "+victim+"; stat -c %a "+victim); got != "mine\n600\n" {
				t.Errorf("%s for %s: a file that has nothing to do with it: %q", c.name, file, got)
			}
			asRoot(t, in, "rm -rf "+file+"; cp -a "+kept+" "+bundle)
		}
	}
	serve(uplink(t, in, ""), "one\n")
	checkAnswer(t, h, run(t, in, questionCommand(h)), "one\n")
}
