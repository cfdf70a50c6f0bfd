package egress

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// pause is how long a host waits between two parts of a response.
const pause = 200 * time.Microsecond

// echoGuess responds with the guess in the request, on the channel that the
// path selects.
func echoGuess(w http.ResponseWriter, r *http.Request) {
	guess := r.URL.Query().Get("g")
	flush := w.(http.Flusher).Flush
	half := func(first, rest string) { // the guest either sees the first part separately, or not
		io.WriteString(w, first)
		flush()
		time.Sleep(pause)
		io.WriteString(w, rest)
	}
	switch name, _, _ := strings.Cut(r.URL.Path[1:], "/"); name {
	case "chunked":
		half("data: "+guess, "\n\ndata: "+guess+"\n\n")
	case "events":
		w.Header().Set("Content-Type", "text/event-stream")
		half("data: "+guess, "\n\ndata: "+guess+"\n\n")
	case "lines":
		w.Header().Set("Content-Type", "application/x-ndjson")
		half(`{"is": "`+guess, "\"}\n{}\n")
	case "grpc":
		w.Header().Set("Content-Type", "application/grpc")
		w.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(guess)+2)))
		half("<<"+guess[:7], guess[7:])
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	case "length":
		w.Header().Set("Content-Length", fmt.Sprint(len(guess)+4))
		half("<<"+guess, ">>")
	case "pieces":
		for _, piece := range []string{"<", guess[:7], guess[7:], ">"} {
			io.WriteString(w, piece)
			flush()
		}
	case "close": // HTTP/1.0 ends a body by closing the connection
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(buf, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n<<%s>>", guess)
		buf.Flush()
		conn.Close()
	case "abort":
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, "<<"+guess)
		flush()
		time.Sleep(pause)
		panic(http.ErrAbortHandler)
	case "gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for range 3 {
			io.WriteString(z, guess)
			z.Flush()
			flush()
		}
		z.Close()
	case "deflate":
		w.Header().Set("Content-Encoding", "deflate")
		z := zlib.NewWriter(w)
		io.WriteString(z, "<<"+guess+">>")
		z.Close()
	case "shared": // the response also contains the value, so a right guess would make it shorter
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprintf(z, "<%s> is for %s", guess, r.Header.Get("Authorization"))
		z.Close()
	case "trailer":
		w.Header().Set("Trailer", "X-Guess")
		io.WriteString(w, "body")
		flush()
		w.Header().Set("X-Guess", guess)
	case "range":
		w.Header().Set("Content-Range", "bytes 0-3/9")
		w.WriteHeader(http.StatusPartialContent)
		io.WriteString(w, guess)
	case "error":
		w.Header().Set("X-Guess", strings.Repeat(guess+" ", 50))
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, guess)
	case "redirect":
		w.Header().Set("Location", "/elsewhere?with="+guess)
		w.Header().Set("Set-Cookie", "c="+guess)
		w.WriteHeader(http.StatusFound)
	case "unchanged":
		w.Header().Set("Etag", `"`+guess+`"`)
		w.WriteHeader(http.StatusNotModified)
	case "empty":
		w.Header().Set("X-Guess", guess)
		w.WriteHeader(http.StatusNoContent)
	case "hints":
		w.Header().Set("Link", "</"+guess+">")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		io.WriteString(w, "body")
	case "name":
		w.Header().Set("X-"+guess, "1")
	case "head":
		w.Header().Set("X-Guess", guess)
		w.Header().Set("Content-Length", "7")
	case "again": // repeated, to multiply the time that a guess takes
		io.WriteString(w, strings.Repeat(guess, 16<<10/len(guess)))
	case "request":
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "done")
	default:
		http.NotFound(w, r)
	}
}

// socketHandlers are the host's handlers for a line received on a WebSocket, by
// path.
var socketHandlers = map[string]func(conn net.Conn, line string){
	"/fragments": func(conn net.Conn, line string) { // a part of a message, then a ping and the rest
		conn.Write(append([]byte{0x01, byte(len(line))}, line...))
		time.Sleep(pause)
		conn.Write([]byte{0x89, 1, '!', 0x80, 0})
	},
	"/message": func(conn net.Conn, line string) {
		conn.Write(append([]byte{0x81, byte(len(line))}, line...))
	},
	"/control": func(conn net.Conn, line string) {
		conn.Write(append([]byte{0x8a, byte(len(line))}, line...))
	},
	"/half": func(conn net.Conn, line string) { // a part of a message, without the rest
		conn.Write([]byte{0x81, 2, 'o', 'k'})
		conn.Write(append([]byte{0x01, byte(len(line))}, line...))
		time.Sleep(pause)
		conn.Close()
	},
}

func guessOverSocket(conn net.Conn, buf *bufio.ReadWriter, q *http.Request) {
	for {
		line, err := buf.ReadString('\n')
		if err != nil {
			return
		}
		socketHandlers[q.URL.Path](conn, line[:len(line)-1])
	}
}
