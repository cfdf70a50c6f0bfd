package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// hostileAgent replaces the real agent. It responds to the ping at the start of
// the sandbox. Its reaction to all other calls depends on the first word of the
// command, or on the directory.
func hostileAgent() error {
	f := os.NewFile(3, "control")
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	f.Close()
	ctl := c.(*net.UnixConn)
	oob := make([]byte, syscall.CmsgSpace(4))
	for {
		var b [1]byte
		_, n, _, _, err := ctl.ReadMsgUnix(b[:], oob)
		if err != nil {
			return err
		}
		msgs, _ := syscall.ParseSocketControlMessage(oob[:n])
		if len(msgs) == 0 {
			return nil
		}
		fds, _ := syscall.ParseUnixRights(&msgs[0])
		file := os.NewFile(uintptr(fds[0]), "call")
		conn, err := net.FileConn(file)
		file.Close()
		if err == nil {
			go answerMaliciously(conn.(*net.UnixConn))
		}
	}
}

// lastCommand is the command of the last execution. It determines the responses
// to later calls.
var lastCommand atomic.Pointer[string]

func answerMaliciously(c *net.UnixConn) {
	defer c.Close()
	f, err := wire.NewReader(c).Read()
	var call wire.Call
	if err != nil || json.Unmarshal(f.Payload, &call) != nil {
		return
	}
	what, later := "", ""
	if s := lastCommand.Load(); s != nil {
		later = *s
	}
	switch call.Op {
	case wire.OpPing, wire.OpKill:
		switch {
		case later == "closes":
		case call.Op == wire.OpPing && (later == "" || later == "stubborn"), later == "killed", later == "flooded":
			_ = wire.WriteJSON(c, wire.TypeOK, nil)
		default:
			time.Sleep(time.Hour)
		}
		return
	case wire.OpExec:
		what = call.Exec.Argv[0]
		lastCommand.Store(&what)
	case wire.OpCollect:
		what = call.Collect.Dir
	case wire.OpPut:
		what = call.Put.Dir
	case wire.OpExecs:
		what = "executions"
	default:
		time.Sleep(time.Hour)
	}
	mib := make([]byte, 1<<20)
	_, _ = rand.Read(mib)
	switch what {
	case "garbage":
		_, _ = c.Write(mib)
	case "huge":
		_, _ = c.Write([]byte{byte(wire.TypeStdout), 0xff, 0xff, 0xff, 0xff})
		for {
			if _, err := c.Write(mib); err != nil {
				return
			}
		}
	case "endless", "flooded":
		repeat(c, wire.TypeStdout, mib)
	case "started":
		repeat(c, wire.TypeStarted, nil)
	case "half":
		_ = c.CloseWrite()
		time.Sleep(time.Hour)
	case "silent", "stubborn", "killed", "closes":
		time.Sleep(time.Hour)
	case "trickle":
		_ = wire.Write(c, wire.TypeStarted, nil)
		var b [5]byte
		b[0] = byte(wire.TypeStdout)
		binary.BigEndian.PutUint32(b[1:], 1<<20)
		for i := 0; ; i++ {
			if _, err := c.Write(b[i%5 : i%5+1]); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	case "unknown":
		_ = wire.Write(c, 250, []byte("{}"))
	case "order":
		_ = wire.WriteJSON(c, wire.TypeOK, nil)
		_ = wire.WriteJSON(c, wire.TypeExit, wire.Exit{})
	case "exit":
		_ = wire.Write(c, wire.TypeExit, []byte(`{"Code":1e999,"Signal":"x"`))
	case "lies":
		_ = wire.Write(c, wire.TypeExit, []byte(`{"Code":4294967296,"Signal":-9,"TimedOut":true,"OOMKilled":true}`))
	case "error":
		_ = wire.WriteJSON(c, wire.TypeError, wire.Error{Kind: "invalid", Field: "../../etc", Message: strings.Repeat("m", 900<<10)})
	case "deep":
		deep := make([]byte, 1<<20)
		for i := range deep {
			deep[i] = '['
		}
		_ = wire.Write(c, wire.TypeError, deep)
	case "skipped":
		repeat(c, wire.TypeFile, []byte(`{"Path":"x.csv","Size":-1}`))
	case "artifacts":
		repeat(c, wire.TypeFile, []byte(`{"Path":"../../x.csv","Size":0}`))
	case "artifact":
		_ = wire.Write(c, wire.TypeFile, []byte(`{"Path":"x.csv","Size":9223372036854775807}`))
		repeat(c, wire.TypeFileData, mib)
	case "executions":
		repeat(c, wire.TypeExec, []byte(`{"ID":"x"}`))
	}
}

func repeat(c net.Conn, t wire.Type, payload []byte) {
	for wire.Write(c, t, payload) == nil {
	}
}
