// Package lab builds a cluster's network out of Linux namespaces: nodes, pods, a client outside the cluster and a
// router, wired with veth pairs, bridges, routes and tunnels. It knows nothing of Services, proxiers or test frameworks.
package lab
