// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// errDropped means that silence proves nothing: the queue of a CPU overflowed and packets were lost.
var errDropped = errors.New(
	"too busy to tell: meanwhile a CPU's queue was full and packets were thrown away (net.core.netdev_max_backlog)")

// softnet has a line for each CPU: packets processed, packets dropped, ... in hexadecimal. It is opened once, since
// every probe reads it. It is the same in every namespace.
var softnet = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/net/softnet_stat") })

// droppedPackets returns how many packets the kernel has dropped so far because the queue of a CPU was full. Such a
// loss looks like silence, but proves nothing about the network under test.
func droppedPackets() (total uint64, err error) {
	f, err := softnet()
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return 0, fmt.Errorf("%s: no column of dropped packets in %q", f.Name(), line)
		}
		n, err := strconv.ParseUint(fields[1], 16, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f.Name(), err)
		}
		total += n
	}
	return total, nil
}
