// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"fmt"
	"strings"
	"testing"
)

// A map of 20,000 Services has a line for each. To look at all lines again for each of them would take minutes.
func TestMapsWithManyElements(t *testing.T) {
	const many = 20_000
	var text strings.Builder
	text.WriteString("table ip kube-proxy { # handle 1\n\tmap service-ips {\n\t\ttype ipv4_addr : verdict\n\t\telements = { ")
	for i := range many {
		fmt.Fprintf(&text, "10.96.%d.%d comment \"a } and , b\" : goto service-%d,\n\t\t\t     ", i/256, i%256, i)
	}
	text.WriteString("10.97.0.0 : goto last }\n\t}\n\tchain after { # handle 2\n\t}\n}\n")
	tables, err := parseNFT(text.String())
	if err != nil {
		t.Fatal(err)
	}
	elements := tables[0].Sets[0].Elements
	if len(elements) != many+1 || elements[1].Jump != "service-1" || elements[many].Jump != "last" ||
		elements[1].Text != `10.96.0.1 comment "a } and , b" : goto service-1` || tables[0].Chain("after") == nil {
		t.Errorf("%d elements; the second one is %+v; %+v", len(elements), elements[1], tables[0].Chains)
	}
}
