// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
)

// A program that is refused writes reads its rules all the same, and what it reads does not count as a write.
func TestReadsAreNotRefused(t *testing.T) {
	w := newWorld(t)
	i := w.start("n1", "sh", "-c", `while sleep 0.1; do
		nft list tables ip >&2 && reads=yes || reads=no
		nft add table ip denylist && writes=yes || writes=no
		echo "reads $reads writes $writes"
	done`)
	await := func(what string, done func(tail string) bool) {
		t.Helper()
		must(t, observe.Await(within(t, time.Minute), nil, func(context.Context) error {
			i.life.output.catchUp()
			if tail := i.log.tail(100); !done(tail) {
				return fmt.Errorf("wait for %s: %s", what, tail)
			}
			return nil
		}))
	}
	free := func(tail string) bool { return strings.Contains(tail, "reads yes writes yes") }
	await("writes before the refusal", free)
	r, err := i.RefuseWrites(t.Context())
	must(t, err)
	await("refused writes", func(string) bool { return r.Writes(lab.V4) >= 3 })
	if tail := i.log.tail(100); strings.Contains(tail, "reads no") || r.Writes(lab.V6) != 0 {
		t.Errorf("%d refused writes of IPv6, and the program wrote %s", r.Writes(lab.V6), tail)
	}
	must(t, r.End())
	await("writes after the refusal", free)
	must(t, i.Stop(t.Context()))
}
