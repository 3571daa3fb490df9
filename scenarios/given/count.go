// SPDX-License-Identifier: Apache-2.0

package given

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/viplab/viplab/suite/spec"
)

// Counter counts the packets of a node that match an nft expression at a point of their way.
type Counter struct {
	// Name is that of the chain made for it.
	Name string
	// Hook and Priority say where: "prerouting", -150.
	Hook     string
	Priority int
	// Match is an nft expression: "ct state new".
	Match string
}

// Count puts counters on a node and gives a function that reads them. They live in a table of their own, which only
// counts; the scenario needs a cluster of its own if it wants nobody else's packets in them.
func Count(ctx context.Context, w spec.World, node string, counters ...Counter) (func() (map[string]int, error),
	error) {
	var script strings.Builder
	script.WriteString("add table inet scenario\n")
	for _, c := range counters {
		fmt.Fprintf(&script, "add chain inet scenario %s { type filter hook %s priority %d; }\n", c.Name, c.Hook, c.Priority)
		fmt.Fprintf(&script, "add rule inet scenario %s %s counter\n", c.Name, c.Match)
	}
	if _, err := w.Run(ctx, node, "nft", script.String()); err != nil {
		return nil, err
	}
	return func() (map[string]int, error) {
		counted := map[string]int{}
		for _, c := range counters {
			text, err := w.Run(ctx, node, "nft", "list chain inet scenario "+c.Name)
			if err != nil {
				return nil, err
			}
			if counted[c.Name], err = packetsIn(text); err != nil {
				return nil, err
			}
		}
		return counted, nil
	}, nil
}

var counterPattern = regexp.MustCompile(`counter packets (\d+)`)

func packetsIn(chain string) (int, error) {
	m := counterPattern.FindStringSubmatch(chain)
	if m == nil {
		return 0, spec.HarnessErrorf("no counter in %s", chain)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, &spec.HarnessError{Err: err}
	}
	return n, nil
}
