// Command hello is the program that the test of Build builds.
package main

func main() { println("hello") }
