// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"reflect"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/nft"
)

// TestNewChainsComeFirst: an element that leads to a new chain comes after it, in a transaction of its own.
func TestNewChainsComeFirst(t *testing.T) {
	chain := func(name, rule string) nft.Chain { return nft.NewChain(name, "", rule) }
	clients := []nft.Container{{Name: "clients", Type: "ipv4_addr"}}
	element := []nft.Element{{In: "service-ips", Key: "10.96.0.1 . tcp . 80", Value: "goto new"}}
	for name, c := range map[string]struct{ gone, come, first, rest nft.Parts }{
		"a new chain": {
			gone: nft.Parts{Chains: []nft.Chain{chain("kept", "drop")}},
			come: nft.Parts{Containers: clients, Elements: element,
				Chains: []nft.Chain{chain("kept", "accept"), chain("new", "accept")}},
			first: nft.Parts{Containers: clients, Chains: []nft.Chain{chain("new", "accept")}},
			rest:  nft.Parts{Chains: []nft.Chain{chain("kept", "accept")}, Elements: element},
		},
		"other rules of a chain": {
			gone: nft.Parts{Chains: []nft.Chain{chain("kept", "drop")}},
			come: nft.Parts{Containers: clients, Chains: []nft.Chain{chain("kept", "accept")}, Elements: element},
			rest: nft.Parts{Containers: clients, Chains: []nft.Chain{chain("kept", "accept")}, Elements: element},
		},
	} {
		if first, rest := ahead(c.gone, c.come); !reflect.DeepEqual(first, c.first) || !reflect.DeepEqual(rest, c.rest) {
			t.Errorf("%s: first %+v, then %+v", name, first, rest)
		}
	}
}
