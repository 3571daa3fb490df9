// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
)

func TestTraffic(t *testing.T) {
	eachBackend(t, func(t *testing.T, b Backend) { proxiertest.Traffic(t, New(b), nil) })
}

func TestUDPFollowsEndpoints(t *testing.T) { proxiertest.UDPFollowsEndpoints(t, New(NFT)) }
