// SPDX-License-Identifier: Apache-2.0

package oracle

// Rule is a sentence of the Service API, or of its documentation, that decides an answer.
type Rule struct {
	// Name identifies the rule in the labels of rows: lower case words with dashes.
	Name string
	// Text is the rule in a sentence, in the words of the source where they are short enough.
	Text string
	// Source is the page that has the rule, or that leaves the matter open.
	Source string
}

// The pages that rules come from.
const (
	serviceAPI = "https://kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/"
	slicesAPI  = "https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/"
	slicesPage = "https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/"
	virtualIPs = "https://kubernetes.io/docs/reference/networking/virtual-ips/"
	sourceIP   = "https://kubernetes.io/docs/tutorials/services/source-ip/"
	labelsPage = "https://kubernetes.io/docs/reference/labels-annotations-taints/" +
		"#servicekubernetesioservice-proxy-name"
	e2eTests = "https://github.com/kubernetes/kubernetes/blob/master/test/e2e/network/"
)

// The rules about who has an address.
var (
	unclaimed = Rule{"unclaimed", "A Service is reached at the ports that it exposes, and at no others.",
		serviceAPI + "#ServiceSpec"}
	otherProxier = Rule{"other-proxier", "A Service with the label service-proxy-name is another program's.", labelsPage}

	proxyNameOptional = Rule{"proxy-name-optional",
		"Proxies other than kube-proxy may ignore the label service-proxy-name.", "https://kep.k8s.io/2447"}
	aliased = Rule{"external-name", "No proxying is involved in a Service of type ExternalName.",
		serviceAPI + "#ServiceSpec"}
	proxyMode = Rule{"ipmode-proxy", "Implementations may use ipMode Proxy to adjust traffic routing.",
		serviceAPI + "#ServiceStatus"}
	sharedFrontend = Rule{"shared-frontend", "The API does not say which of several Services has an address and port.",
		serviceAPI + "#ServiceSpec"}
	outsideToClusterIP = Rule{"clusterip-from-outside",
		"A ClusterIP makes a Service only reachable from within the cluster.",
		"https://kubernetes.io/docs/concepts/services-networking/service/#type-clusterip"}
	foreignFamily = Rule{"foreign-family",
		"The API does not say what an address of a family means that the Service does not have.",
		serviceAPI + "#ServiceSpec"}
	otherAddresses = Rule{"nodeport-other-address", "On which addresses of a node a NodePort is served is configured.",
		"https://kubernetes.io/docs/reference/config-api/kube-proxy-config.v1alpha1/"}
)

// The rules about which endpoints count.
var (
	internalCluster = Rule{"internal-cluster", "Cluster routes to all endpoints evenly.", serviceAPI + "#ServiceSpec"}
	internalLocal   = Rule{"internal-local",
		"Under internalTrafficPolicy Local, only endpoints on the client's node get its traffic.",
		serviceAPI + "#ServiceSpec"}
	internalNobody = Rule{"internal-local-nobody",
		"The traffic is dropped if there are no local endpoints; the Service behaves as if it had none, says another page.",
		"https://kubernetes.io/docs/concepts/services-networking/service-traffic-policy/"}
	externalCluster = Rule{"external-cluster", "Cluster uses the standard behavior of routing to all endpoints evenly.",
		serviceAPI + "#ServiceSpec"}
	externalLocal = Rule{"external-local", "Each node delivers traffic only to the node-local endpoints.",
		serviceAPI + "#ServiceSpec"}
	externalNobody = Rule{"external-local-nobody", "Traffic mistakenly sent to a node with no endpoints is dropped.",
		serviceAPI + "#ServiceSpec"}
	externalNowhere = Rule{"external-local-nowhere",
		"What becomes of traffic under policy Local if no node has an endpoint is said only for nodes.",
		serviceAPI + "#ServiceSpec"}
	externalInside = Rule{"external-local-inside",
		"Traffic sent to an External IP or LoadBalancer IP from within the cluster always gets Cluster semantics.",
		serviceAPI + "#ServiceSpec"}
	nodePortInside = Rule{"nodeport-local-inside",
		"Clients inside may need to take traffic policy into account when picking a node for a NodePort.",
		serviceAPI + "#ServiceSpec"}
	noEndpoints = Rule{"no-endpoints", "A Service without endpoints refuses connections.", e2eTests + "service.go"}
	// The tests look "for ICMP REJECT" at the NodePort and the load balancer's address, of TCP and of UDP.
	noEndpointsOutside = Rule{"no-endpoints-external",
		"A Service without endpoints refuses connections and datagrams to its NodePort and external addresses.",
		e2eTests + "loadbalancer.go"}
	terminating = Rule{"terminating",
		"If all endpoints are terminating, traffic goes to those of them that still serve.",
		"https://kep.k8s.io/1669"}
	duplicated = Rule{"duplicated",
		"Endpoints may be in several slices at once; which of their conditions counts is not defined.",
		slicesPage + "#duplicate-endpoints"}
	hinted = Rule{"hinted", "If all endpoints have hints, those hinted for the zone or node get its traffic.",
		"https://kep.k8s.io/3015"}
	hintsOptional = Rule{"hints-optional",
		"Implementations can use the traffic distribution as a hint, but need not adhere to it.",
		serviceAPI + "#ServiceSpec"}
	hintsOfUnready = Rule{"hints-of-unready",
		"Hints apply if every endpoint has one; whether endpoints that are not ready count is not said.",
		"https://kep.k8s.io/4444"}
	hintsAtClient = Rule{"hints-at-client",
		"Hints name the zone or node of the client, or of the node that routes: a NodePort of another node has both.",
		virtualIPs + "#traffic-distribution"}
	publishedNotReady = Rule{"published-not-ready",
		"Agents that deal with endpoints of a Service with publishNotReadyAddresses disregard indications of readiness.",
		serviceAPI + "#ServiceSpec"}
	sliceHandedOver = Rule{"slice-handed-over",
		"The label service-proxy-name is used on Services; its design filters Endpoints with the label as well.",
		"https://kep.k8s.io/2447"}
	portProtocol = Rule{"port-protocol",
		"A port of a slice belongs to the port of the Service with its name; what another protocol means is not said.",
		serviceAPI + "#ServiceSpec"}
	portUnrestricted = Rule{"port-unrestricted",
		"A port of a slice without a number does not restrict ports, and means what its consumer makes of it.",
		slicesAPI + "#EndpointSlice"}
	multicastEndpoint = Rule{"endpoint-multicast",
		"The API admits a multicast address as an endpoint, which is \"a single logical backend\", and does not say more.",
		slicesAPI + "#EndpointSlice"}
)

// The rules about who may connect, and how.
var (
	outOfRange = Rule{"out-of-range", "Traffic through the load balancer is restricted to the listed client IPs.",
		serviceAPI + "#ServiceSpec"}
	rangesIgnored = Rule{"ranges-optional", "The field is ignored if the platform does not support the feature.",
		serviceAPI + "#ServiceSpec"}
	rangesElsewhere = Rule{"ranges-of-other-family",
		"The API does not say what ranges of one family mean for clients of the other.", serviceAPI + "#ServiceSpec"}
	clientKept = Rule{"client-kept", "Packets to a ClusterIP from within the cluster keep their source.",
		sourceIP + "#source-ip-for-services-with-type-clusterip"}
	clientKeptLocal = Rule{"client-kept-local", "Policy Local delivers without masquerading the client source IP.",
		serviceAPI + "#ServiceSpec"}
	affinity = Rule{"affinity", "Connections from a particular client are passed to the same Pod each time.",
		virtualIPs + "#session-affinity"}
)

// The rules about connections that are open while the cluster changes.
var (
	flowStays = Rule{"flow-stays", "An open connection or flow stays with an endpoint that may get new ones.",
		virtualIPs}
	tcpUndecided = Rule{"tcp-undecided",
		"What becomes of TCP connections to an endpoint that is no longer chosen is undecided.",
		"https://github.com/kubernetes/kubernetes/issues/108523"}
	flowDrains = Rule{"flow-drains", "A UDP flow may stay with an endpoint that serves and gets no new flows.",
		"https://kep.k8s.io/1669"}
	flowMoves = Rule{"flow-moves", "A UDP flow leaves an endpoint that no longer serves, or that is gone.",
		"https://github.com/kubernetes/kubernetes/issues/126130"}
	flowEnds = Rule{"flow-ends", "A UDP flow ends with the address that it was sent to.",
		"https://github.com/kubernetes/kubernetes/issues/126130"}
	affinityKept = Rule{"affinity-kept", "A client with affinity stays with its Pod when other endpoints change.",
		virtualIPs + "#session-affinity"}
)

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{
		unclaimed, otherProxier, proxyNameOptional, aliased, proxyMode, sharedFrontend, outsideToClusterIP,
		foreignFamily, otherAddresses, internalCluster, internalLocal, internalNobody, externalCluster, externalLocal,
		externalNobody, externalNowhere, externalInside, nodePortInside, noEndpoints, noEndpointsOutside,
		terminating,
		duplicated, hinted, hintsOptional, hintsOfUnready, hintsAtClient, publishedNotReady, sliceHandedOver,
		portProtocol, portUnrestricted, multicastEndpoint, outOfRange, rangesIgnored, rangesElsewhere, clientKept,
		clientKeptLocal, affinity, flowStays, tcpUndecided, flowDrains, flowMoves, flowEnds,
		affinityKept,
	}
}
