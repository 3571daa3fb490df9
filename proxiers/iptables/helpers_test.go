// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

var backends = []Backend{NFT, Legacy}

func eachBackend(t *testing.T, run func(*testing.T, Backend)) {
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) { run(t, b) })
	}
}

// start starts a proxier on a node, or skips the test where it cannot run.
func start(t testing.TB, b Backend, node spec.Node) *instance {
	t.Helper()
	return proxiertest.Start(t, New(b), node).(*instance)
}
