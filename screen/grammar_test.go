package screen_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"
)

// The embedded parser has the checksum that grammar/build.sh recorded.
func TestParserHasRecordedChecksum(t *testing.T) {
	b, err := os.ReadFile("grammar/parser.wasm.gz")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("grammar/parser.sum")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != strings.Fields(string(sum))[0] {
		t.Errorf("grammar/parser.wasm.gz is %s, grammar/parser.sum says %s", got, sum)
	}
}
