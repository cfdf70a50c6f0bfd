package providertest

import (
	"testing"

	"github.com/brig-run/brig/internal/testenv"
)

// Agent returns the path of the guest agent, for providers that bring it
// somewhere.
func Agent(t *testing.T) string {
	t.Helper()
	return testenv.Bin(t, "brig-agent")
}
