"""What is found wrong with a server that has not crashed: wrong answers, requests that starve."""
