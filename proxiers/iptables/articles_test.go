// SPDX-License-Identifier: Apache-2.0

package iptables

import "slices"

// Reasons why lines of the articles look different today.
const (
	masqLater = "the ClusterIP's rule for masquerading has moved into the Service's own chain, so that KUBE-SERVICES " +
		"has one rule for each"
	extLater = "NodePorts, external IPs and load balancer addresses share a chain, KUBE-EXT, which masquerades and " +
		"goes on"
	commented = "rules of endpoints have a comment, which says where they lead"
	unmarked  = "the mark is taken off, so that a packet that comes by again in a tunnel is not masqueraded twice"
	noDrop    = "what nobody serves here is dropped in the filter table: KUBE-MARK-DROP belonged to the kubelet, which " +
		"has given it up"
)

// ofTraffic is the first article: a ClusterIP, a NodePort with three endpoints, and a DNS server.
var ofTraffic = []listed{
	{"KUBE-SERVICES", `0 0 KUBE-MARK-MASQ  tcp  --  *      *      !192.167.0.0/16       10.103.1.234         /* default/my-nginx-cluster: cluster IP */ tcp dpt:80`,
		[]string{"KUBE-SVC-X KUBE-MARK-MASQ tcp !192.167.0.0/16 10.103.1.234 /* default/my-nginx-cluster cluster IP */ " +
			"tcp dpt:80"}, masqLater},
	{"KUBE-SERVICES", `0 0 KUBE-SVC-52FY5WPFTOHXARFK  tcp  --  *      *       0.0.0.0/0            10.103.1.234         /* default/my-nginx-cluster: cluster IP */ tcp dpt:80`, nil, ""},
	{"KUBE-SERVICES", `0 0 KUBE-MARK-MASQ  tcp  --  *      *      !192.167.0.0/16       10.97.229.148        /* default/my-nginx-nodeport: cluster IP */ tcp dpt:80`,
		[]string{"KUBE-SVC-X KUBE-MARK-MASQ tcp !192.167.0.0/16 10.97.229.148 /* default/my-nginx-nodeport cluster IP */ " +
			"tcp dpt:80"}, masqLater},
	{"KUBE-SERVICES", `0 0 KUBE-SVC-6JXEEPSEELXY3JZG  tcp  --  *      *       0.0.0.0/0            10.97.229.148        /* default/my-nginx-nodeport: cluster IP */ tcp dpt:80`, nil, ""},
	{"KUBE-SERVICES", `0 0 KUBE-NODEPORTS  all  --  *      *       0.0.0.0/0            0.0.0.0/0            /* kubernetes service nodeports; NOTE: this must be the last rule in this chain */ ADDRTYPE match dst-type LOCAL`, nil, ""},

	{"KUBE-NODEPORTS", `0 0 KUBE-MARK-MASQ  tcp  --  *      *       0.0.0.0/0            0.0.0.0/0            /* default/my-nginx-nodeport: */ tcp dpt:30915`,
		[]string{"KUBE-EXT-X KUBE-MARK-MASQ all 0.0.0.0/0 0.0.0.0/0 /* masquerade traffic for default/my-nginx-nodeport " +
			"external destinations */"}, extLater},
	{"KUBE-NODEPORTS", `0 0 KUBE-SVC-6JXEEPSEELXY3JZG  tcp  --  *      *       0.0.0.0/0            0.0.0.0/0            /* default/my-nginx-nodeport: */ tcp dpt:30915 `,
		[]string{
			"KUBE-NODEPORTS KUBE-EXT-X tcp 0.0.0.0/0 0.0.0.0/0 /* default/my-nginx-nodeport */ tcp dpt:30915",
			"KUBE-EXT-X KUBE-SVC-X all 0.0.0.0/0 0.0.0.0/0",
		}, extLater},

	{"KUBE-SVC-6JXEEPSEELXY3JZG", `0 0 KUBE-SEP-6HM47TA5RTJFOZFJ  all  --  *      *       0.0.0.0/0            0.0.0.0/0            statistic mode random probability 0.33332999982`,
		[]string{"KUBE-SVC-X KUBE-SEP-X all 0.0.0.0/0 0.0.0.0/0 /* default/my-nginx-nodeport -> 192.167.1.10:80 */ " +
			"statistic mode random probability 0.333"}, commented},
	{"KUBE-SVC-6JXEEPSEELXY3JZG", `0 0 KUBE-SEP-AHRDCNDYGFSFVA64  all  --  *      *       0.0.0.0/0            0.0.0.0/0            statistic mode random probability 0.50000000000`,
		[]string{"KUBE-SVC-X KUBE-SEP-X all 0.0.0.0/0 0.0.0.0/0 /* default/my-nginx-nodeport -> 192.167.1.11:80 */ " +
			"statistic mode random probability 0.500"}, commented},
	{"KUBE-SVC-6JXEEPSEELXY3JZG", `0 0 KUBE-SEP-BK523K4AX5Y34OZL  all  --  *      *       0.0.0.0/0            0.0.0.0/0      `,
		[]string{"KUBE-SVC-X KUBE-SEP-X all 0.0.0.0/0 0.0.0.0/0 /* default/my-nginx-nodeport -> 192.167.2.10:80 */"},
		commented},

	{"KUBE-SEP-QQATNRPNVZFKMY6D", `0 0 KUBE-MARK-MASQ  all  --  *      *       192.167.1.138        0.0.0.0/0`,
		[]string{"KUBE-SEP-X KUBE-MARK-MASQ all 192.167.1.138 0.0.0.0/0 /* kube-system/kube-dns:dns-tcp */"}, commented},
	{"KUBE-SEP-QQATNRPNVZFKMY6D", `0 0 DNAT       tcp  --  *      *       0.0.0.0/0            0.0.0.0/0            tcp to:192.167.1.138:53 `,
		[]string{"KUBE-SEP-X DNAT tcp 0.0.0.0/0 0.0.0.0/0 /* kube-system/kube-dns:dns-tcp */ tcp to:192.167.1.138:53"},
		commented},

	{"KUBE-POSTROUTING", `0 0 MASQUERADE  all  --  *      *       0.0.0.0/0            0.0.0.0/0            /* kubernetes service traffic requiring SNAT */ mark match 0x4000/0x4000 `,
		[]string{
			"KUBE-POSTROUTING RETURN all 0.0.0.0/0 0.0.0.0/0 mark match ! 0x4000/0x4000",
			"KUBE-POSTROUTING MARK all 0.0.0.0/0 0.0.0.0/0 MARK xor 0x4000",
			"KUBE-POSTROUTING MASQUERADE all 0.0.0.0/0 0.0.0.0/0 /* kubernetes service traffic requiring SNAT */ random-fully",
		}, unmarked},
}

// ofWebapp is the other article: a NodePort with two endpoints.
var ofWebapp = []listed{
	{"PREROUTING", `KUBE-SERVICES    all         --       anywhere  anywhere     /*        kubernetes             service   portals  */`, nil, ""},
	{"KUBE-SERVICES", `KUBE-MARK-MASQ             tcp            --   !10.244.0.0/16  10.103.46.104   /*  default/webapp                   cluster  IP          */     tcp   dpt:www`,
		[]string{"KUBE-SVC-X KUBE-MARK-MASQ tcp !10.244.0.0/16 10.103.46.104 /* default/webapp cluster IP */ tcp dpt:80"},
		masqLater},
	{"KUBE-SERVICES", `KUBE-SVC-2IRACUALRELARSND  tcp            --   anywhere        10.103.46.104   /*  default/webapp                   cluster  IP          */     tcp   dpt:www`, nil, ""},
	{"KUBE-SERVICES", `KUBE-NODEPORTS             all            --   anywhere        anywhere        /*  kubernetes                       service  nodeports;  NOTE:  this  must        be  the  last  rule  in  this  chain  */  ADDRTYPE  match  dst-type  LOCAL`, nil, ""},
	{"KUBE-NODEPORTS", `KUBE-MARK-MASQ             tcp             --   anywhere     anywhere     /*  default/webapp  */  tcp  dpt:31380`,
		[]string{"KUBE-EXT-X KUBE-MARK-MASQ all 0.0.0.0/0 0.0.0.0/0 /* masquerade traffic for default/webapp external " +
			"destinations */"}, extLater},
	{"KUBE-NODEPORTS", `KUBE-SVC-2IRACUALRELARSND  tcp             --   anywhere     anywhere     /*  default/webapp  */  tcp  dpt:31380`,
		[]string{
			"KUBE-NODEPORTS KUBE-EXT-X tcp 0.0.0.0/0 0.0.0.0/0 /* default/webapp */ tcp dpt:31380",
			"KUBE-EXT-X KUBE-SVC-X all 0.0.0.0/0 0.0.0.0/0",
		}, extLater},
	{"KUBE-SVC-2IRACUALRELARSND", `KUBE-SEP-AO6KYGU752IZFEZ4  all                        --   anywhere     anywhere     /*  default/webapp  */  statistic  mode  random  probability  0.50000000000`,
		[]string{"KUBE-SVC-X KUBE-SEP-X all 0.0.0.0/0 0.0.0.0/0 /* default/webapp -> 10.244.120.102:80 */ statistic mode " +
			"random probability 0.500"}, commented},
	{"KUBE-SVC-2IRACUALRELARSND", `KUBE-SEP-PJFBSHHDX4VZAOXM  all                        --   anywhere     anywhere     /*  default/webapp  */`,
		[]string{"KUBE-SVC-X KUBE-SEP-X all 0.0.0.0/0 0.0.0.0/0 /* default/webapp -> 10.244.120.103:80 */"}, commented},
	{"KUBE-SEP-AO6KYGU752IZFEZ4", `KUBE-MARK-MASQ  all                        --   10.244.120.102  anywhere     /*  default/webapp  */       `, nil, ""},
	{"KUBE-SEP-AO6KYGU752IZFEZ4", `DNAT            tcp                        --   anywhere        anywhere     /*  default/webapp  */  tcp  to:10.244.120.102:80`, nil, ""},
	{"KUBE-SEP-PJFBSHHDX4VZAOXM", `KUBE-MARK-MASQ  all                        --   10.244.120.103  anywhere     /*  default/webapp  */       `, nil, ""},
	{"KUBE-SEP-PJFBSHHDX4VZAOXM", `DNAT            tcp                        --   anywhere        anywhere     /*  default/webapp  */  tcp  to:10.244.120.103:80`, nil, ""},
	{"KUBE-MARK-MASQ", `MARK    all             --   anywhere     anywhere     MARK  or  0x4000`, nil, ""},
}

// ofLocal is the same article's NodePort under external policy Local, on a node with an endpoint and on one without.
var ofLocal = map[string][]listed{
	"minikube": append(slices.Clone(localOnBoth),
		listed{"KUBE-XLB-2IRACUALRELARSND", `KUBE-SEP-5T4S2ILYSXWY3R2J all — anywhere anywhere /* Balancing rule 0 for default/webapp */`,
			[]string{
				"KUBE-EXT-X KUBE-SVL-X all 0.0.0.0/0 0.0.0.0/0",
				"KUBE-SVL-X KUBE-SEP-X all 0.0.0.0/0 0.0.0.0/0 /* default/webapp -> 10.244.120.111:80 */",
			}, "the endpoints on the node have a chain of their own, KUBE-SVL, as internal policy Local needs it, too"},
		listed{"KUBE-SVC-2IRACUALRELARSND", `KUBE-SEP-5T4S2ILYSXWY3R2J all — anywhere anywhere /* default/webapp */`,
			[]string{"KUBE-SVC-X KUBE-SEP-X all 0.0.0.0/0 0.0.0.0/0 /* default/webapp -> 10.244.120.111:80 */"}, commented}),
	"minikube-m02": append(slices.Clone(localOnBoth),
		listed{"KUBE-XLB-2IRACUALRELARSND", `KUBE-MARK-DROP all — anywhere anywhere /* default/webapp has no local endpoints */`,
			[]string{"KUBE-EXTERNAL-SERVICES DROP tcp 0.0.0.0/0 0.0.0.0/0 /* default/webapp has no local endpoints */ " +
				"ADDRTYPE match dst-type LOCAL tcp dpt:30080"}, noDrop}),
}

const xlbLater = "KUBE-XLB is called KUBE-EXT now, and serves all addresses but the ClusterIP"

var localOnBoth = []listed{
	{"KUBE-NODEPORTS", `KUBE-MARK-MASQ tcp — 127.0.0.0/8 anywhere /* default/webapp */ tcp dpt:30080`,
		[]string{"KUBE-EXT-X KUBE-MARK-MASQ all 0.0.0.0/0 0.0.0.0/0 /* masquerade LOCAL traffic for default/webapp " +
			"external destinations */ ADDRTYPE match src-type LOCAL"},
		"what the node itself sends is masqueraded by its source, whichever address that is"},
	{"KUBE-NODEPORTS", `KUBE-XLB-2IRACUALRELARSND tcp — anywhere anywhere /* default/webapp */ tcp dpt:30080`,
		[]string{"KUBE-NODEPORTS KUBE-EXT-X tcp 0.0.0.0/0 0.0.0.0/0 /* default/webapp */ tcp dpt:30080"}, xlbLater},
	{"KUBE-XLB-2IRACUALRELARSND", `KUBE-SVC-2IRACUALRELARSND all — 10.244.0.0/16 anywhere /* Redirect pods trying to reach external loadbalancer VIP to clusterIP */`,
		[]string{"KUBE-EXT-X KUBE-SVC-X all 10.244.0.0/24 0.0.0.0/0 /* pod traffic for default/webapp external " +
			"destinations */"}, "only the node's own pods take the short cut (kubernetes#74383)"},
	{"KUBE-XLB-2IRACUALRELARSND", `KUBE-MARK-MASQ all — anywhere anywhere /* masquerade LOCAL traffic for default/webapp LB IP */ ADDRTYPE match src-type LOCAL`,
		[]string{"KUBE-EXT-X KUBE-MARK-MASQ all 0.0.0.0/0 0.0.0.0/0 /* masquerade LOCAL traffic for default/webapp " +
			"external destinations */ ADDRTYPE match src-type LOCAL"}, xlbLater},
	{"KUBE-XLB-2IRACUALRELARSND", `KUBE-SVC-2IRACUALRELARSND all — anywhere anywhere /* route LOCAL traffic for default/webapp LB IP to service chain */ ADDRTYPE match src-type LOCAL`,
		[]string{"KUBE-EXT-X KUBE-SVC-X all 0.0.0.0/0 0.0.0.0/0 /* route LOCAL traffic for default/webapp external " +
			"destinations */ ADDRTYPE match src-type LOCAL"}, xlbLater},
}
